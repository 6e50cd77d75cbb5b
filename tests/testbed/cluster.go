package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// etcdHandle reaches the etcd of this process without a socket.
type etcdHandle struct{ client *clientv3.Client }

func startEtcd(ctx context.Context, set settings, ports ports) (*etcdHandle, error) {
	cfg := embed.NewConfig()
	cfg.Name = "testbed"
	cfg.Dir = filepath.Join(set.dir, "etcd")
	cfg.LogLevel = "error"
	// A killed process keeps its writes in the page cache. Only a power loss would lose them.
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 8 << 30
	// A single-node cluster needs no peer listener, only a constant peer address.
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:2380"}
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", ports.Etcd)}
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{peer}
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// No other node takes part in elections, so they can be short.
	cfg.TickMs, cfg.ElectionMs = 50, 500
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		return &etcdHandle{client: v3client.New(server.Server)}, nil
	case err := <-server.Err():
		return nil, err
	case <-ctx.Done():
		return nil, errors.New("not ready before the deadline")
	}
}

// compact drops every revision before the current one and returns the current revision.
func (e *etcdHandle) compact() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	now, err := e.client.Get(ctx, "compact", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	_, err = e.client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	return now.Header.Revision, err
}

// serveAPI runs the apiserver and returns when it ends.
func serveAPI(set settings, ports ports, files files) error {
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", ports.Etcd),
		fmt.Sprintf("--secure-port=%d", ports.API),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--tls-cert-file=" + files.cert,
		"--tls-private-key-file=" + files.key,
		"--cert-dir=" + set.dir,
		"--service-account-key-file=" + files.serviceAccountKey,
		"--service-account-signing-key-file=" + files.serviceAccountKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file=" + files.tokensCSV,
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount",
		// Priority and fairness would delay requests of the tests.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		// Compaction only on request of a test.
		"--etcd-compaction-interval=0",
		"--etcd-count-metric-poll-period=0",
		"--etcd-db-metric-poll-interval=0",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
	}
	cmd := app.NewAPIServerCommand()
	cmd.SetArgs(append(args, set.extra...))
	cmd.SilenceErrors = true
	return cmd.Execute()
}

// awaitReady returns once the apiserver is ready and the namespace "default" exists.
func awaitReady(ctx context.Context, ports ports, files files, died <-chan error) error {
	pem, err := os.ReadFile(files.ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		for !answers(ctx, client, ports.url()+path, files.tokens["admin"]) {
			select {
			case err := <-died:
				return err
			case <-ctx.Done():
				return fmt.Errorf("%s not answered before the deadline", path)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func answers(ctx context.Context, client *http.Client, url, token string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
