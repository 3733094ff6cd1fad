package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// How long a server may take until it answers.
const startPatience = 60 * time.Second

// server is one member of the group under test with its folder.
type server struct {
	program   string
	name      string
	folder    string
	clientURL string
	peerURL   string
	// cluster is what all members are given as --initial-cluster.
	cluster string
	process *exec.Cmd
}

func newServer(program, name string) (*server, error) {
	client, err := freeAddress()
	if err != nil {
		return nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "etcd-durability-")
	if err != nil {
		return nil, err
	}
	return &server{
		program: program, name: name, folder: folder, clientURL: "http://" + client, peerURL: "http://" + peer,
	}, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// start begins; answers waits until it serves.
func (s *server) start() error {
	logs, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logs.Close()
	s.process = exec.Command(s.program,
		"--name="+s.name, "--data-dir="+filepath.Join(s.folder, "data"), "--log-level=warn",
		"--listen-client-urls="+s.clientURL, "--advertise-client-urls="+s.clientURL,
		"--listen-peer-urls="+s.peerURL, "--initial-advertise-peer-urls="+s.peerURL,
		"--initial-cluster="+s.cluster)
	s.process.Stdout, s.process.Stderr = logs, logs
	// It shall not outlive this program, however that ends.
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s.process.Start()
}

// answers returns when the server answers a linearizable read.
func (s *server) answers() error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.clientURL}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	for {
		once, cancelOnce := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(once, "is there anybody")
		cancelOnce()
		if err == nil {
			return nil
		}
		if s.process.Process.Signal(syscall.Signal(0)) != nil || ctx.Err() != nil {
			return fmt.Errorf("the server does not answer: %w; its last words: %s", err, s.lastWords())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *server) lastWords() string {
	bytes, err := os.ReadFile(filepath.Join(s.folder, "log"))
	if err != nil || len(bytes) == 0 {
		return "none"
	}
	return string(bytes[max(0, len(bytes)-600):])
}

func (s *server) kill() {
	if s.process == nil {
		return
	}
	if err := s.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintln(os.Stderr, "killing the server:", err)
	}
	_ = s.process.Wait()
}

func (s *server) remove() {
	s.kill()
	os.RemoveAll(s.folder)
}
