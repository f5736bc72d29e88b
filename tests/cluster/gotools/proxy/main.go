// A proxy of another maker, on a free port of loopback or the one given: CONNECT or SOCKS5, with
// user "jane" and password "canary". It prints its address, and a line for each server it is asked
// for, until its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/armon/go-socks5"
	"github.com/elazarl/goproxy"
	"github.com/elazarl/goproxy/ext/auth"
)

const (
	user     = "jane"
	password = "canary"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: proxy http|socks5 ADDRESS")
	}
	listener, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	switch os.Args[1] {
	case "http":
		err = serveHTTP(listener)
	case "socks5":
		err = serveSocks(listener)
	default:
		err = fmt.Errorf("no such kind of proxy: %s", os.Args[1])
	}
	log.Fatal(err)
}

func serveHTTP(listener net.Listener) error {
	proxy := goproxy.NewProxyHttpServer()
	basic := auth.BasicConnect("tests", func(name, given string) bool {
		return name == user && given == password
	})
	proxy.OnRequest().HandleConnectFunc(
		func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
			action, host := basic.HandleConnect(host, ctx)
			if action == goproxy.OkConnect {
				fmt.Println(host)
			}
			return action, host
		})
	return http.Serve(listener, proxy)
}

// told prints what is asked for.
type told struct{}

func (told) Allow(ctx context.Context, request *socks5.Request) (context.Context, bool) {
	fmt.Println(request.DestAddr.Address())
	return ctx, true
}

func serveSocks(listener net.Listener) error {
	server, err := socks5.New(&socks5.Config{
		Credentials: socks5.StaticCredentials{user: password},
		Rules:       told{},
		Logger:      log.New(io.Discard, "", 0),
	})
	if err != nil {
		return err
	}
	return server.Serve(listener)
}
