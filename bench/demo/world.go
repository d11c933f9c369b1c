package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	// patience is the time that a service may take to become ready on a busy machine.
	patience = time.Minute
	// pause is the time between two attempts.
	pause = 100 * time.Millisecond
)

// imageEntrypoints are the entrypoints of images whose services have only a command.
var imageEntrypoints = map[string]string{"headgate/headgate": "headgate", "headgate/demo-api": "api", "prom/prometheus": "prometheus"}

// noProgram are services that have no program here.
var noProgram = []string{"grafana"}

// world runs the services of the compose file as processes.
type world struct {
	scope     testing.TB
	project   *types.Project
	dir       string            // of all files
	addresses map[string]string // of services here, by service:port in the compose file
	running   map[string]*testenv.Program
	started   []string // services, in order
}

// newWorld reads the compose file and creates its secrets.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{scope: t, dir: t.TempDir(), addresses: map[string]string{}, running: map[string]*testenv.Program{}}
	compose, secrets := filepath.Join(testenv.Repository(t), "deploy", "compose"), filepath.Join(w.dir, "secrets")
	out, err := exec.CommandContext(t.Context(), filepath.Join(compose, "secrets.sh"), secrets).CombinedOutput()
	if err != nil {
		t.Fatalf("secrets.sh: %v\n%s", err, out)
	}
	w.project = load(t, filepath.Join(compose, "compose.yaml"), "SECRETS="+secrets)
	return w
}

// load reads a compose file with the services of all profiles.
func load(t testing.TB, file string, env ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(env), cli.WithProfiles([]string{"*"}), cli.WithResolvedPaths(true))
	testenv.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	testenv.NoError(t, err)
	return project
}

// build builds the programs of the repository, and links the others next to them.
func (w *world) build() {
	w.scope.Helper()
	bin := filepath.Join(w.dir, "bin") + string(filepath.Separator)
	build := exec.CommandContext(w.scope.Context(), "go", "build", "-o", bin, "./cmd/headgate", "./deploy/compose/api")
	build.Dir = testenv.Repository(w.scope)
	if out, err := build.CombinedOutput(); err != nil {
		w.scope.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"envoy", "redis-server", "prometheus"} {
		testenv.NoError(w.scope, os.Symlink(testenv.Find(w.scope, name), bin+name))
	}
}

// startAll starts all services that have a program and no profile, and returns when the nodes have rules and Redis.
func (w *world) startAll() {
	w.scope.Helper()
	w.build()
	for _, name := range w.project.ServiceNames() {
		if len(w.project.Services[name].Profiles) == 0 && !slices.Contains(noProgram, name) {
			w.startAfterDependencies(name)
		}
	}
	for _, name := range []string{"headgate-1", "headgate-2"} {
		w.awaitReady(name)
	}
}

// awaitReady returns when a node has rules and Redis.
func (w *world) awaitReady(node string) {
	w.scope.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		text, status, err := fleet.Fetch(w.scope.Context(), http.DefaultClient, http.MethodGet, "http://"+w.address(node, "8082")+"/readyz", "")
		if err == nil && status == http.StatusOK && strings.Contains(string(text), `{"status":"ok"`) {
			return
		}
		if time.Now().After(deadline) || w.scope.Context().Err() != nil {
			w.scope.Fatalf("%s: not ready: %d %s %v", node, status, text, err)
		}
	}
}

func (w *world) startAfterDependencies(name string) {
	w.scope.Helper()
	if slices.Contains(w.started, name) {
		return
	}
	w.started = append(w.started, name)
	dependencies := w.project.Services[name].GetDependencies()
	slices.Sort(dependencies)
	for _, d := range dependencies {
		w.startAfterDependencies(d)
	}
	switch s := w.project.Services[name]; {
	case name == "postgres":
		w.startPostgres(s)
	case len(ports(s)) == 0:
		w.complete(s)
	default:
		w.start(name)
	}
}

// startPostgres starts PostgreSQL with the role and the database that its image would create.
func (w *world) startPostgres(s types.ServiceConfig) {
	w.scope.Helper()
	server, err := url.Parse(testenv.StartPostgres(w.scope).URL())
	testenv.NoError(w.scope, err)
	w.addresses[s.Name+":"+ports(s)[0]] = server.Host
	ctx := w.scope.Context()
	db, err := pgx.Connect(ctx, server.String())
	testenv.NoError(w.scope, err)
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	role, database := pgx.Identifier{*s.Environment["POSTGRES_USER"]}.Sanitize(), pgx.Identifier{*s.Environment["POSTGRES_DB"]}.Sanitize()
	for _, statement := range []string{"CREATE ROLE " + role + " LOGIN", "CREATE DATABASE " + database + " OWNER " + role} {
		_, err = db.Exec(ctx, statement)
		testenv.NoError(w.scope, err)
	}
}

// complete runs a service that ends, again if it fails and the compose file says so.
func (w *world) complete(s types.ServiceConfig) {
	w.scope.Helper()
	w.mount(s)
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		command := w.command(s)
		out, err := command.CombinedOutput()
		if err == nil {
			return
		}
		if s.Restart != types.RestartPolicyOnFailure || time.Now().After(deadline) || w.scope.Context().Err() != nil {
			w.scope.Fatalf("%s: %s: %v\n%s", s.Name, command, err, out)
		}
	}
}

// start starts or restarts a service and returns when it listens.
func (w *world) start(name string) {
	w.scope.Helper()
	s := w.project.Services[name]
	w.mount(s)
	w.running[name] = testenv.Run(w.scope, w.command(s), w.address(name, ports(s)[0]))
}

// ports returns the ports on which other services or the host reach a service.
func ports(s types.ServiceConfig) (all []string) {
	for _, p := range s.Ports {
		all = append(all, strconv.FormatUint(uint64(p.Target), 10))
	}
	return append(all, s.Expose...)
}

// command returns the command of a service, with its addresses and paths on this machine.
func (w *world) command(s types.ServiceConfig) *exec.Cmd {
	image, _, _ := strings.Cut(s.Image, ":")
	words := slices.Concat(s.Entrypoint, s.Command)
	if entrypoint := imageEntrypoints[image]; len(s.Entrypoint) == 0 && entrypoint != "" {
		words = slices.Concat([]string{entrypoint}, words)
	}
	for i := range words {
		words[i] = w.localize(s, words[i])
	}
	if s.Name == "redis" { // its options have no host:port
		_, port, _ := strings.Cut(w.address(s.Name, ports(s)[0]), ":")
		words = append(words, "--bind", "127.0.0.1", "--port", port)
	}
	bin := filepath.Join(w.dir, "bin")
	program := filepath.Join(bin, filepath.Base(words[0]))
	if _, err := os.Stat(program); err != nil {
		program = words[0] // such as sh
	}
	command := exec.CommandContext(w.scope.Context(), program, words[1:]...)
	command.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, value := range s.Environment {
		command.Env = append(command.Env, name+"="+w.localize(s, *value))
	}
	return command
}
