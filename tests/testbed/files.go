package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ports are the cluster's addresses, kept in its directory.
type ports struct {
	API  int `json:"api"`
	Etcd int `json:"etcd"`
}

func (p ports) url() string { return fmt.Sprintf("https://127.0.0.1:%d", p.API) }

// files are the paths of credentials and kubeconfigs, and the tokens.
type files struct {
	ca, cert, key, serviceAccountKey, tokensCSV string
	kubeconfig, limitedKubeconfig               string
	tokens                                      map[string]string
}

// choosePorts returns the ports of the command line, else those of the last start, else free ones.
func choosePorts(set settings) (ports, error) {
	path := filepath.Join(set.dir, "ports.json")
	var kept ports
	if text, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(text, &kept); err != nil {
			return kept, fmt.Errorf("%s: %w", path, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	if set.port != 0 {
		kept.API = set.port
	}
	if set.etcdPort != 0 {
		kept.Etcd = set.etcdPort
	}
	for _, port := range []*int{&kept.API, &kept.Etcd} {
		for *port == 0 || kept.API == kept.Etcd {
			free, err := freePort()
			if err != nil {
				return kept, err
			}
			*port = free
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return kept, err
	}
	return kept, os.WriteFile(path, text, 0o600)
}

// freePort returns a port below the kernel's range of ephemeral ports. While a cluster is down, an outgoing connection
// could take a port from that range. Even a client of that cluster could, and would then connect to itself.
func freePort() (int, error) {
	for range 200 {
		port := 20000 + mathrand.IntN(12000)
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// prepareFiles creates missing files and keeps existing ones, so that tokens and the CA survive a restart.
func prepareFiles(set settings, ports ports) (files, error) {
	in := func(name string) string { return filepath.Join(set.dir, name) }
	f := files{
		ca: in("ca.crt"), cert: in("serving.crt"), key: in("serving.key"),
		serviceAccountKey: in("service-account.key"), tokensCSV: in("tokens.csv"),
		kubeconfig: in("kubeconfig"), limitedKubeconfig: in("kubeconfig-limited"),
	}
	if err := makeCertificates(f); err != nil {
		return f, fmt.Errorf("certificates: %w", err)
	}
	if err := makeServiceAccountKey(f.serviceAccountKey); err != nil {
		return f, fmt.Errorf("service account key: %w", err)
	}
	var err error
	if f.tokens, err = makeTokens(in("tokens.json"), f.tokensCSV); err != nil {
		return f, fmt.Errorf("tokens: %w", err)
	}
	for path, user := range map[string]string{f.kubeconfig: "admin", f.limitedKubeconfig: "limited"} {
		if err := writeKubeconfig(path, set.name, user, ports, f); err != nil {
			return f, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	return f, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeCertificates signs a serving certificate with a CA whose key is not kept.
func makeCertificates(f files) error {
	if exists(f.ca) && exists(f.cert) && exists(f.key) {
		return nil
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template("testbed-ca", 1)
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	leaf := template("testbed", 2)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.DNSNames = []string{"localhost"}
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}

	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(f.ca, "CERTIFICATE", caDER),
		writePEM(f.cert, "CERTIFICATE", leafDER),
		writePEM(f.key, "PRIVATE KEY", keyDER),
	)
}

func template(name string, serial int64) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:      pkix.Name{CommonName: name},
		SerialNumber: big.NewInt(serial),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
	}
}

func makeServiceAccountKey(path string) error {
	if exists(path) {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return writePEM(path, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// makeTokens creates tokens for `admin`, with all rights, and `limited`, with only the rights that RBAC objects grant.
func makeTokens(path, csv string) (map[string]string, error) {
	tokens := map[string]string{}
	if text, err := os.ReadFile(path); err == nil {
		return tokens, json.Unmarshal(text, &tokens)
	}
	for _, user := range []string{"admin", "limited"} {
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		tokens[user] = hex.EncodeToString(secret)
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return nil, err
	}
	lines := fmt.Sprintf("%s,admin,admin,\"system:masters\"\n%s,limited,limited\n", tokens["admin"], tokens["limited"])
	return tokens, errors.Join(os.WriteFile(csv, []byte(lines), 0o600), os.WriteFile(path, text, 0o600))
}

// writeKubeconfig writes a kubeconfig with one context, named after the cluster. Each user has a separate file, since a
// program that reads every context of a file must not see the same cluster twice.
func writeKubeconfig(path, name, user string, ports ports, f files) error {
	named := func(key string, value any) []map[string]any {
		return []map[string]any{{"name": name, key: value}}
	}
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters":        named("cluster", map[string]string{"server": ports.url(), "certificate-authority": f.ca}),
		"users":           named("user", map[string]string{"token": f.tokens[user]}),
		"contexts":        named("context", map[string]string{"cluster": name, "user": name}),
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
