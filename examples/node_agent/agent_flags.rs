//! The agent's own flags, and what its help says around them.

use crate::flags::{Group, Program, flag};

pub(crate) static PROGRAM: Program = Program {
    name: "node_agent",
    about: "node_agent keeps the Secrets and ConfigMaps that the pods of a node name, as the \
        kubelet does. It prints a row per pod and object, never a value, and then each change as \
        it comes.",
    groups: &GROUPS,
    notes: &[
        (
            "Signals",
            "SIGINT and SIGTERM end it cleanly, a second one at once. SIGHUP has it read the files \
             of --references again, and tell again what it told in vain; a file that cannot be \
             read or is wrong changes nothing. With --once, SIGHUP does nothing. \
             Where the terminal of its output is gone, SIGHUP ends it cleanly.",
        ),
        (
            "Exit codes",
            "0 every object has a definite answer (NotFound and Forbidden are answers, unless \
             --fail-on-missing is given), or a clean stop by a signal\n\
             1 the server cannot be reached or refuses us, or an answer is missing at the \
             deadline\n\
             2 wrong usage\n\
             3 nobody takes the output any more",
        ),
    ],
};

const GROUPS: [Group; 8] = [
    Group {
        title: "Which objects",
        flags: &[
            flag("node-name", "NAME", "the node whose pods are followed")
                .default("$NODE_NAME, unless references are given"),
            flag(
                "namespace",
                "NAME",
                "follow the node's pods of this namespace",
            )
            .short('n')
            .default("all namespaces"),
            flag(
                "selector",
                "SELECTOR",
                "follow the node's pods with these labels",
            )
            .short('l'),
            flag(
                "secret",
                "NAMESPACE/NAME",
                "keep this Secret, whatever pods name; again for each object",
            ),
            flag(
                "configmap",
                "NAMESPACE/NAME",
                "keep this ConfigMap, whatever pods name; again for each object",
            ),
            flag(
                "config",
                "FILE",
                "keep what the YAML in FILE declares, as the files that it says, and tell those \
                 whom it names. A change of FILE and SIGHUP have it read again; a FILE that is \
                 wrong changes nothing. The README of the agent has its fields",
            ),
            flag(
                "check-config",
                "",
                "say whether the FILE of --config is right, then exit",
            ),
            flag(
                "references",
                "FILE",
                "keep the objects in FILE, one per line: secret NAMESPACE/NAME or configmap \
                 NAMESPACE/NAME; what follows # is left out. SIGHUP has it read again",
            ),
        ],
    },
    Group {
        title: "Pods from the kubelet itself",
        flags: &[
            flag(
                "pods-from",
                "kubelet|apiserver",
                "where the pods of the node come from. A kubelet is asked again and again, and the \
                 API server has no watch of pods then",
            )
            .default("apiserver"),
            flag(
                "kubelet-url",
                "URL",
                "the address of the kubelet. Only an http URL, such as http://NODE:10255, asks its \
                 read-only port",
            )
            .default("https://NODE:10250, of --node-name"),
            flag(
                "kubelet-interval",
                "DURATION",
                "the time from an answer of the kubelet to the next request, and up to a fifth \
                 more; 2m at most",
            )
            .default("10s"),
            flag(
                "kubelet-certificate-authority",
                "FILE",
                "the authorities that sign for the kubelet, read once",
            )
            .default("the system's"),
            flag(
                "kubelet-token-file",
                "FILE",
                "the bearer token for the kubelet, read again as it changes. Its identity needs \
                 the right to get nodes/pods, or nodes/proxy before Kubernetes 1.33",
            )
            .default("in a pod, with https: the service account's"),
        ],
    },
    Group {
        title: "Output",
        flags: &[
            flag(
                "output",
                "table|wide|name|json|yaml",
                "what is printed: a table of 80 columns (wide: with all columns), the objects' \
                 names, or the whole node in one object with --once, else an object per change: \
                 the same object with the one pod and the one object that changed, a line of JSON \
                 or a document of YAML",
            )
            .short('o')
            .default("table"),
            flag("no-headers", "", "leave out the headers of a table"),
            flag(
                "once",
                "",
                "print when every object has its answer, then exit",
            ),
            flag(
                "fail-on-missing",
                "",
                "exit with 1 if an object is not there, or may not be read; with --once",
            ),
            flag(
                "timeout",
                "DURATION",
                "how long --once waits for answers, and how long the first contact with the \
                 server may take without it; 0 waits without end",
            )
            .default("30s"),
        ],
    },
    Group {
        title: "Files",
        flags: &[
            flag(
                "output-dir",
                "DIR",
                "write each object as files: mode 0600, all keys at once, as the kubelet's \
                 volumes, DIR/NAMESPACE/secrets/NAME/KEY, or configmaps. They go with the last pod \
                 that names the object, and stay when the agent ends. Best on a tmpfs. DIR is new, \
                 empty, or has nothing but such files; one agent at a time writes there",
            ),
            flag(
                "output-adopt",
                "",
                "take a DIR that has other files too; they stay as they are",
            ),
            flag("output-owner", "UID:GID", "whose files they are").default("the agent's"),
            flag(
                "exec-on-change",
                "COMMAND",
                "run a program after files changed: its name and arguments, with spaces between \
                 them, no shell. $KUBECACHE_CHANGED names what changed, as lines like secret \
                 NAMESPACE/NAME; what does not fit into 64 KiB is counted in \
                 $KUBECACHE_CHANGED_LEFT_OUT. Changes during a run are one more run. A run that \
                 fails is told, fails the check hook of /healthz and --once, and the next one gets \
                 its names too. It has a process group of its own, which is ended with it: \
                 SIGTERM, then SIGKILL. The agent's end ends it; with --once the agent waits for \
                 it",
            ),
            flag(
                "exec-timeout",
                "DURATION",
                "how long a run may take; 0 waits without end",
            )
            .default("30s"),
            flag(
                "signal-on-change",
                "FILE",
                "send SIGHUP to the process whose number FILE holds",
            ),
            flag(
                "credential-socket",
                "PATH",
                "a Unix socket, mode 0600, that gives values to units of systemd whose \
                 LoadCredential= names PATH, as the configuration declares them. - is the socket \
                 that systemd passes with StandardInput=socket",
            ),
            flag(
                "credential-timeout",
                "DURATION",
                "how long a unit waits for a value that is missing before it fails; 0 waits \
                 without end",
            )
            .default("30s"),
            flag(
                "ready-timeout",
                "DURATION",
                "after this time the agent tells systemd (Type=notify) that it is ready, whatever \
                 is missing; the status names it. Else it is ready once each object has its answer \
                 and its files; 0 waits without end",
            )
            .default("1m"),
        ],
    },
    Group {
        title: "A start without the server, in an agent built with --features snapshot",
        flags: &[
            flag(
                "snapshot",
                "FILE",
                "keep what is in memory in FILE, sealed. An agent that starts while the server is \
                 away has its objects from there, Restored, until the server answers. One agent at \
                 a time writes FILE",
            ),
            flag(
                "snapshot-key",
                "FILE",
                "the key of the snapshot: 32 random bytes, mode 0600",
            ),
        ],
    },
    Group {
        title: "How changes are noticed",
        flags: &[
            flag(
                "change-detection",
                "Watch|Cache|Get",
                "how changes of the objects are noticed, as the kubelet's setting \
                 configMapAndSecretChangeDetectionStrategy: Watch watches each object; Cache \
                 fetches what is read and older than the time to live in the node's annotation \
                 node.alpha.kubernetes.io/ttl (else 1m); Get fetches each read",
            )
            .default("Watch"),
            flag(
                "watch-scope",
                "name|namespace[:N]",
                "what is watched with Watch: each object by its name, or with namespace each \
                 namespace in which more than N objects (default 20) are watched. Where the agent \
                 may not watch the namespace, it watches the objects by name",
            )
            .default("name"),
            flag(
                "watches-max",
                "N",
                "the most connections for the Secrets and for the ConfigMaps with Watch. One of \
                 them gets the objects that have no watch, twice a minute; their state says \
                 (polled)",
            )
            .default("1000 watches each, beyond which objects fail"),
            flag(
                "sync-frequency",
                "DURATION",
                "how often the objects are read with Cache and Get, beside each time that a pod \
                 comes or changes",
            )
            .default("1m, as the kubelet's syncFrequency; with --demo 2s"),
            flag(
                "idle-limit",
                "DURATION",
                "how long a server that sends bookmarks may be silent before it is asked anew and \
                 counts as unhealthy; servers send a bookmark about once a minute",
            )
            .default("130s"),
        ],
    },
    Group {
        title: "Health and metrics",
        flags: &[
            flag(
                "health-probe-bind-address",
                "ADDRESS",
                "serve /healthz, /readyz and /livez at HOST:PORT, or at :PORT of all interfaces; \
                 port 0 is a free one, told on stderr. /healthz and /readyz answer 500 when the \
                 server stops confirming what is known, /readyz also until each object has had its \
                 answer; /livez is 200 while the agent runs. ?verbose lists the checks, \
                 ?exclude=NAME leaves one out. /statusz and /flagz tell people what runs, since \
                 when and with which flags",
            )
            .default("0: not at all"),
            flag(
                "metrics-bind-address",
                "ADDRESS",
                "serve /metrics for Prometheus, in the same way; the same address may be given for \
                 both. In an agent that was built with --features metrics",
            )
            .default("0: not at all"),
        ],
    },
    Group {
        title: "The demonstration, in an agent built with --features testing",
        flags: &[
            flag(
                "demo",
                "",
                "ask no cluster, and serve the embedded recordings to itself on loopback; its \
                 first line says so, with -o json on stderr",
            ),
            flag(
                "demo-speed",
                "FACTOR",
                "how many times as fast as recorded; 0 is everything at once",
            )
            .default("6"),
        ],
    },
];
