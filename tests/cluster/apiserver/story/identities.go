package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// An identity is somebody the API server knows, by certificate, by token or by both.
type identity struct {
	name    string // of its files
	user    string
	groups  []string
	cert    bool
	token   bool
	expired bool
}

var identities = []identity{
	{name: "admin", user: "cluster-admin", groups: []string{"system:masters"}, cert: true, token: true},
	{name: "node", user: "system:node:node-1", groups: []string{"system:nodes"}, cert: true, token: true},
	{name: "node-2", user: "system:node:node-2", groups: []string{"system:nodes"}, cert: true},
	{name: "story-agent", user: "story-agent", groups: []string{"story"}, cert: true, token: true},
	{name: "nobody", user: "nobody", groups: []string{"strangers"}, cert: true, token: true},
	{name: "expired", user: "cluster-admin", groups: []string{"system:masters"}, cert: true, expired: true},
}

// writeIdentities writes everything that does not depend on the server's address, and refuses to replace any of it.
func writeIdentities(dir string) error {
	certs := filepath.Join(dir, "certs")
	if err := os.MkdirAll(certs, 0o700); err != nil {
		return err
	}
	authority, err := newAuthority("kubecache-cluster-ca")
	if err != nil {
		return err
	}
	if err := authority.writeCertificate(filepath.Join(certs, "ca.crt")); err != nil {
		return err
	}
	stranger, err := newAuthority("some-other-ca")
	if err != nil {
		return err
	}
	if err := stranger.writeCertificate(filepath.Join(certs, "other-ca.crt")); err != nil {
		return err
	}
	if err := writeServer(authority, certs); err != nil {
		return err
	}
	if err := writeRotation(certs); err != nil {
		return err
	}
	var tokens strings.Builder
	for i, who := range identities {
		if who.cert {
			if err := authority.issue(clientTemplate(who), filepath.Join(certs, who.name)); err != nil {
				return err
			}
		}
		if who.token {
			token := randomHex(24)
			fmt.Fprintf(&tokens, "%s,%s,uid-%d,%q\n", token, who.user, i, strings.Join(who.groups, ","))
			if err := writeNew(filepath.Join(certs, who.name+".token"), []byte(token)); err != nil {
				return err
			}
		}
	}
	return writeNew(filepath.Join(certs, "tokens.csv"), []byte(tokens.String()))
}

func writeServer(authority *authority, certs string) error {
	server := template("kube-apiserver")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if err := authority.issue(server, filepath.Join(certs, "server")); err != nil {
		return err
	}
	// Service account tokens are signed by a key of their own, as in any cluster.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(filepath.Join(certs, "service-account.key"), key)
}

// rotatingName is the server name whose certificate changes, and its authority with it.
const rotatingName = "rotating.test"

// writeRotation writes two authorities with a certificate of the server each, rotating-N-ca.crt and rotating-N, and
// serves the first: a test replaces rotating.crt and rotating.key by the others.
func writeRotation(certs string) error {
	for number := 1; number <= 2; number++ {
		base := filepath.Join(certs, fmt.Sprintf("rotating-%d", number))
		authority, err := newAuthority(fmt.Sprintf("kubecache-rotating-ca-%d", number))
		if err != nil {
			return err
		}
		if err := authority.writeCertificate(base + "-ca.crt"); err != nil {
			return err
		}
		server := template(rotatingName)
		server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		server.DNSNames = []string{rotatingName}
		if err := authority.issue(server, base); err != nil {
			return err
		}
	}
	for _, kind := range []string{".crt", ".key"} {
		content, err := os.ReadFile(filepath.Join(certs, "rotating-1"+kind))
		if err != nil {
			return err
		}
		if err := writeNew(filepath.Join(certs, "rotating"+kind), content); err != nil {
			return err
		}
	}
	return nil
}

type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	der  []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root := template(name)
	root.IsCA = true
	root.BasicConstraintsValid = true
	root.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{key: key, cert: cert, der: der}, err
}

func (a *authority) writeCertificate(path string) error {
	return writeNew(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der}))
}

// issue writes base.crt and base.key.
func (a *authority) issue(leaf *x509.Certificate, base string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	if err := writeNew(base+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return err
	}
	return writeKey(base+".key", key)
}

func template(commonName string) *x509.Certificate {
	now := time.Now()
	serial := new(big.Int).SetBytes([]byte(randomHex(8)))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func clientTemplate(who identity) *x509.Certificate {
	client := template(who.user)
	client.Subject.Organization = who.groups
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if who.expired {
		client.NotBefore = time.Now().Add(-48 * time.Hour)
		client.NotAfter = time.Now().Add(-24 * time.Hour)
	}
	return client
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeNew(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func writeNew(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	rand.Read(random) // never fails: the runtime ends the program instead
	return hex.EncodeToString(random)
}
