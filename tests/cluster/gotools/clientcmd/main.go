// Asks for one Secret with client-go, as each kubeconfig says whose path comes on standard input,
// and writes one line about each: "answered", or the error.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The namespace and the name of the object that is asked for.
const path = "/api/v1/namespaces/shop/secrets/db"

// Far more than a request to a local server takes.
const patience = 20 * time.Second

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		told := "answered"
		if err := ask(lines.Text()); err != nil {
			told = "error: " + strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Println(told)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(file string) error {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file, WarnIfAllMissing: false}
	overrides := &clientcmd.ConfigOverrides{}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loading.ClientConfig()
	if err != nil {
		return err
	}
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = "application/json"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.Get().AbsPath(path).MaxRetries(0).Do(limited).Error()
}
