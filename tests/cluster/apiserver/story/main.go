// Command story prepares the test cluster's identities and plays, phase by phase, what happens in the shop that
// the recordings tell of.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage:
  story <phase> --kubeconfig FILE   play one phase (story phases lists them)
  story all --kubeconfig FILE       play every phase, in order
  story phases                      list the phases
  story do VERB --kubeconfig FILE   do the verb of a phase's file to the YAML documents on standard input
  story churn --kubeconfig FILE [--namespace N] [--objects N] [--changes N] [--writers N] [--seed N]
                                    create, update and delete many ConfigMaps from several writers at once
  story certs DIR                   write the CA, the certificates and the tokens
  story kubeconfigs DIR URL         write a kubeconfig per identity
  story ports N                     print N free loopback ports
  story wait --kubeconfig FILE [--timeout D] [--pid PID]
                                    wait until the server says it is ready
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "story:", err)
		if errors.Is(err, errUsage) {
			fmt.Fprint(os.Stderr, usage)
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong arguments")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	name, rest := args[0], args[1:]
	switch {
	case name == "certs" && len(rest) == 1:
		return writeIdentities(rest[0])
	case name == "kubeconfigs" && len(rest) == 2:
		return writeKubeconfigs(rest[0], rest[1])
	case name == "ports" && len(rest) == 1:
		return printPorts(rest[0])
	case name == "wait":
		return waitReady(ctx, rest)
	case name == "phases" && len(rest) == 0:
		return printPhases()
	case name == "churn":
		return playChurn(ctx, rest)
	case name == "do" && len(rest) > 0:
		return playInput(ctx, rest[0], rest[1:])
	default:
		return playNamed(ctx, name, rest)
	}
}

// connect takes the one flag that all commands have which talk to the server.
func connect(name string, args []string) (*player, error) {
	flags := flag.NewFlagSet("story "+name, flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig to act with")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return nil, errUsage
	}
	return newPlayer(*kubeconfig)
}

func playInput(ctx context.Context, name string, args []string) error {
	verb, known := verbs[name]
	if !known {
		return fmt.Errorf("%w: no verb %q", errUsage, name)
	}
	player, err := connect("do", args)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return player.playFile(ctx, content, verb)
}

func playNamed(ctx context.Context, name string, args []string) error {
	phases, err := phaseNames()
	if err != nil {
		return err
	}
	player, err := connect(name, args)
	if err != nil {
		return err
	}
	played := 0
	for _, phase := range phases {
		number, _, _ := strings.Cut(phase, "-")
		if name != "all" && name != number && name != phase {
			continue
		}
		if err := player.play(ctx, phase); err != nil {
			return fmt.Errorf("phase %s: %w", phase, err)
		}
		played++
	}
	if played == 0 {
		return fmt.Errorf("%w: no phase %q", errUsage, name)
	}
	return nil
}

func printPhases() error {
	phases, err := phaseNames()
	if err != nil {
		return err
	}
	for _, phase := range phases {
		fmt.Println(phase)
	}
	return nil
}

// printPorts holds all listeners open until every port is known, so that no port is printed twice.
func printPorts(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return errUsage
	}
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	}
	return nil
}

func waitReady(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("story wait", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig to ask with")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait")
	pid := flags.Int("pid", 0, "give up at once when this process has ended")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	player, err := newPlayer(*kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		last := player.ready(ctx)
		if last == nil {
			return nil
		}
		if *pid > 0 && syscall.Kill(*pid, 0) != nil {
			return fmt.Errorf("the server process %d has ended; last answer: %w", *pid, last)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready after %s; last answer: %w", *timeout, last)
		case <-tick.C:
		}
	}
}
