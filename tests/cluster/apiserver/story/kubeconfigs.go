package main

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfigs writes DIR/kubeconfig/<identity>.yaml with everything inline, <identity>-files.yaml with relative
// paths instead, <identity>-token.yaml for those who have a token, and two that must fail.
func writeKubeconfigs(dir, server string) error {
	out := filepath.Join(dir, "kubeconfig")
	if err := os.MkdirAll(out, 0o700); err != nil {
		return err
	}
	certs := filepath.Join(dir, "certs")
	authority, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		return err
	}
	inline := api.Cluster{Server: server, CertificateAuthorityData: authority}
	files := api.Cluster{Server: server, CertificateAuthority: "../certs/ca.crt"}
	for _, who := range identities {
		base := filepath.Join(out, who.name)
		if who.cert {
			user, err := inlineCertificate(filepath.Join(certs, who.name))
			if err != nil {
				return err
			}
			paths := api.AuthInfo{
				ClientCertificate: "../certs/" + who.name + ".crt",
				ClientKey:         "../certs/" + who.name + ".key",
			}
			if err := writeKubeconfig(base+".yaml", inline, user); err != nil {
				return err
			}
			if err := writeKubeconfig(base+"-files.yaml", files, paths); err != nil {
				return err
			}
		}
		if who.token {
			token, err := os.ReadFile(filepath.Join(certs, who.name+".token"))
			if err != nil {
				return err
			}
			if err := writeKubeconfig(base+"-token.yaml", inline, api.AuthInfo{Token: string(token)}); err != nil {
				return err
			}
		}
	}
	return writeBroken(out, certs, server, inline)
}

// writeBroken writes the kubeconfigs whose connection has to be refused: by us, and by the server.
func writeBroken(out, certs, server string, inline api.Cluster) error {
	stranger, err := os.ReadFile(filepath.Join(certs, "other-ca.crt"))
	if err != nil {
		return err
	}
	admin, err := inlineCertificate(filepath.Join(certs, "admin"))
	if err != nil {
		return err
	}
	wrong := api.Cluster{Server: server, CertificateAuthorityData: stranger}
	if err := writeKubeconfig(filepath.Join(out, "wrong-ca.yaml"), wrong, admin); err != nil {
		return err
	}
	return writeKubeconfig(filepath.Join(out, "wrong-token.yaml"), inline, api.AuthInfo{Token: "not-a-token"})
}

func inlineCertificate(base string) (api.AuthInfo, error) {
	cert, err := os.ReadFile(base + ".crt")
	if err != nil {
		return api.AuthInfo{}, err
	}
	key, err := os.ReadFile(base + ".key")
	return api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}, err
}

func writeKubeconfig(path string, cluster api.Cluster, user api.AuthInfo) error {
	config := api.NewConfig()
	config.Clusters["cluster"] = &cluster
	config.AuthInfos["user"] = &user
	config.Contexts["test"] = &api.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "test"
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeNew(path, content)
}
