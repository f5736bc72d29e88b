// client-go's side, with the kubelet's own managers and pod-status cache on top of it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// What this program is asked to do; see ../marks.rs.
type task struct {
	scenario, way, resource, url, authority string
	count                                   int
}

var stdin = bufio.NewReader(os.Stdin)

// Says that something has been reached.
func tell(mark string) { fmt.Println(mark) }

// Waits for the next order; empty once the comparison has gone.
func order() string {
	line, _ := stdin.ReadString('\n')
	return strings.TrimSpace(line)
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "convert" {
		convert(os.Args[2])
		return
	}
	if len(os.Args) != 7 {
		panic("scenario way resource url authority count")
	}
	count, err := strconv.Atoi(os.Args[6])
	must(err)
	t := task{os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], count}
	switch t.scenario {
	case "collection":
		collection(t)
	case "watches":
		watches(t)
	case "store":
		store(t)
	case "waiters":
		waiters()
	case "readers":
		readers(t)
	default:
		panic("unknown scenario " + t.scenario)
	}
}

// A client without a rate limit; ways end with the encoding, such as "store/protobuf".
func client(t task) (*kubernetes.Clientset, string) {
	way, encoding, _ := strings.Cut(t.way, "/")
	config := &rest.Config{Host: t.url, QPS: -1}
	if strings.HasPrefix(t.url, "https") {
		config.CAFile = t.authority
	}
	if encoding == "protobuf" {
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		config.ContentType = "application/vnd.kubernetes.protobuf"
	} else {
		config.AcceptContentTypes = "application/json"
		config.ContentType = "application/json"
	}
	clientset, err := kubernetes.NewForConfig(config)
	must(err)
	return clientset, way
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
