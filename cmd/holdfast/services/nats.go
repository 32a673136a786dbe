package services

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// MaxPayload bounds a NATS message in bytes: webhooks are kept whole in a
// stream (DESIGN section 9), imports never are.
const MaxPayload = 2 << 20

// NATSOptions says how an embedded server is started.
type NATSOptions struct {
	Dir  string // where JetStream keeps its streams
	Port int    // 0: a free one
}

// NATS is a server with JetStream inside this process.
type NATS struct {
	server *server.Server
	token  string
	Port   int
}

// URL is the server's address for nats.go.
func (n *NATS) URL() string { return fmt.Sprintf("nats://%s@127.0.0.1:%d", n.token, n.Port) }

// StartNATS starts the server and returns when it takes connections.
func StartNATS(o NATSOptions) (*NATS, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	token, err := kept(filepath.Join(dir, "token"), nil)
	if err != nil {
		return nil, err
	}
	port := o.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		ServerName:         "holdfast",
		Host:               "127.0.0.1",
		Port:               port,
		Authorization:      token,
		MaxPayload:         MaxPayload,
		JetStream:          true,
		StoreDir:           dir,
		JetStreamMaxMemory: 64 << 20,
		JetStreamMaxStore:  4 << 30,
		NoSigs:             true, // the workbench handles signals
		NoLog:              true,
	})
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	go s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, errors.New("nats: the server does not take connections (is the port taken?)")
	}
	if !s.JetStreamEnabled() {
		s.Shutdown()
		return nil, errors.New("nats: JetStream did not start")
	}
	addr, ok := s.Addr().(interface{ String() string })
	if !ok {
		s.Shutdown()
		return nil, errors.New("nats: no address")
	}
	n := &NATS{server: s, token: token}
	if _, err := fmt.Sscanf(addr.String(), "127.0.0.1:%d", &n.Port); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("nats: address %s: %w", addr, err)
	}
	return n, nil
}

// Close stops the server and waits for it.
func (n *NATS) Close() error {
	n.server.Shutdown()
	n.server.WaitForShutdown()
	return nil
}
