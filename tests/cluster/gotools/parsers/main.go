// Reads what client-go reads from text, for the fuzzer. It takes frames on standard input, each a
// length in decimal, a newline and so many bytes, and answers each with such a frame. The argument
// names the reader; an answer that begins with "refused" says that the reader does not take it.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
)

// The sets of labels that a selector is asked about, as in src/testing/readings.rs.
var sets = []labels.Set{
	{},
	{"a": "b"},
	{"a": "1"},
	{"a": ""},
	{"b": "c", "a": "b"},
	{"x/y": "z"},
	{"example.com/a": "7", "in": "notin", "b": "1"},
}

var readers = map[string]func([]byte) (string, error){
	"selector":   selector,
	"kubeconfig": kubeconfig,
}

func main() {
	if len(os.Args) != 2 || readers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: parsers selector|kubeconfig")
		os.Exit(2)
	}
	if err := serve(readers[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(read func([]byte) (string, error)) error {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		head, err := in.ReadString('\n')
		if err == io.EOF && head == "" {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		length, err := strconv.Atoi(strings.TrimSuffix(head, "\n"))
		if err != nil {
			return err
		}
		input := make([]byte, length)
		if _, err := io.ReadFull(in, input); err != nil {
			return err
		}
		answer := ask(read, input)
		fmt.Fprintf(out, "%d\n%s", len(answer), answer)
		// The fuzzer sends several inputs and then waits for as many answers.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func ask(read func([]byte) (string, error), input []byte) (answer string) {
	defer func() {
		if panicked := recover(); panicked != nil {
			answer = fmt.Sprint("refused: panic: ", panicked)
		}
	}()
	answer, err := read(input)
	if err != nil {
		return "refused: " + err.Error()
	}
	return answer
}

// Which of the sets match.
func selector(input []byte) (string, error) {
	selector, err := labels.Parse(string(input))
	if err != nil {
		return "", err
	}
	var answer strings.Builder
	for _, set := range sets {
		fmt.Fprint(&answer, map[bool]int{true: 1}[selector.Matches(set)])
	}
	return answer.String(), nil
}

// What a client would be made of.
func kubeconfig(input []byte) (string, error) {
	loaded, err := clientcmd.Load(input)
	if err != nil {
		return "", err
	}
	options := clientcmd.ConfigOverrides{}
	client := clientcmd.NewDefaultClientConfig(*loaded, &options)
	config, err := client.ClientConfig()
	if err != nil {
		return "", err
	}
	namespace, _, err := client.Namespace()
	if err != nil {
		return "", err
	}
	name := config.TLSClientConfig.ServerName
	return fmt.Sprintf("namespace %s\nname %s\n", namespace, name), nil
}
