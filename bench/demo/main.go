// Command demo runs the services of deploy/compose/compose.yaml without containers, with the same config files, on free ports. It
// knows which program a service runs; commands, files, secrets and dependencies are those of the compose file.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	env := flag.String("env", "out/demo.env", "`file` to write with shell functions and variables for the commands of docs/demo.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := suite.Run(ctx, func(s *suite.Scope) { run(s, *env) })
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	fmt.Println("\nstopped")
}

// run runs the demo until it is interrupted.
func run(s *suite.Scope, env string) {
	started := time.Now()
	fmt.Println("starting; the first time, this compiles Headgate")
	w := newWorld(s)
	w.startAll()
	commands := w.listen()
	env, err := filepath.Abs(env)
	testenv.NoError(s, err)
	testenv.NoError(s, os.MkdirAll(filepath.Dir(env), 0o755))
	testenv.NoError(s, os.WriteFile(env, []byte(w.env()), 0o600))
	s.Cleanup(func() { _ = os.Remove(env) })
	fmt.Print(w.overview(time.Since(started), env))
	for {
		select {
		case <-s.Context().Done():
			return
		case c := <-commands:
			c.done <- w.do(c.name, c.service)
		}
	}
}

// overview returns what runs where, and what to try.
func (w *world) overview(elapsed time.Duration, env string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ready after %.0f s\n\n", elapsed.Seconds())
	line := func(name, scheme, service, port string) {
		fmt.Fprintf(&b, "  %-11s %s%s\n", name, scheme, w.address(service, port))
	}
	line("API", "http://", "envoy", "8000")
	for _, node := range []string{"headgate-1", "headgate-2"} {
		line(node, "metrics and health on http://", node, "8082")
	}
	line("Redis", "", "redis", "6379")
	line("PostgreSQL", "", "postgres", "5432")
	line("Prometheus", "http://", "prometheus", "9090")
	fmt.Fprintf(&b, `
In another terminal:

  . %s
  for i in $(seq 12); do curl -s -o /dev/null -w '%%{http_code} ' -H 'X-API-Key: demo' $API/search; done; echo
  headgate explain GET /search api_key=demo

docs/demo.md continues from here. Ctrl-C stops everything.
`, env)
	return b.String()
}

// env returns a script for users' shells: the addresses, headgate with an operator's token, and "demo kill SERVICE" and "demo start
// SERVICE". deploy/compose/env.sh is the same for containers.
func (w *world) env() string {
	cli := w.project.Services["cli"]
	w.mount(cli)
	var headgate []string
	for name, value := range cli.Environment {
		headgate = append(headgate, name+"="+quote(w.localize(cli, *value)))
	}
	for _, word := range w.command(cli).Args {
		headgate = append(headgate, quote(word))
	}
	return fmt.Sprintf("API=http://%s\nPROMETHEUS=http://%s\nheadgate() { %s \"$@\"; }\ndemo() { curl -sS --unix-socket %s \"http://demo/$1/$2\"; }\n",
		w.address("envoy", "8000"), w.address("prometheus", "9090"), strings.Join(headgate, " "), quote(w.socket()))
}

// quote quotes a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// socket returns the path to which the functions of env send commands. Only the user who started the demo may enter its directory.
func (w *world) socket() string { return filepath.Join(w.dir, "commands") }

// command is a command of a user; done gets its result.
type command struct {
	name, service string
	done          chan error
}

// listen accepts commands on the socket.
func (w *world) listen() <-chan command {
	commands := make(chan command)
	mux := http.NewServeMux()
	mux.HandleFunc("/{name}/{service}", func(rw http.ResponseWriter, r *http.Request) {
		c := command{r.PathValue("name"), r.PathValue("service"), make(chan error, 1)}
		select {
		case commands <- c:
			if err := <-c.done; err != nil {
				http.Error(rw, "demo: "+err.Error(), http.StatusBadRequest)
			}
		case <-r.Context().Done():
		}
	})
	listener, err := (&net.ListenConfig{}).Listen(w.scope.Context(), "unix", w.socket())
	testenv.NoError(w.scope, err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	w.scope.Cleanup(func() { _ = server.Close() })
	return commands
}

// do executes a command.
func (w *world) do(name, service string) error {
	program, ok := w.running[service]
	if !ok {
		return fmt.Errorf("no service %q; try redis, api, envoy, headgate-1, headgate-2 or prometheus", service)
	}
	switch name {
	case "kill":
		program.Kill()
	case "start":
		program.Kill()
		w.start(service)
	default:
		return fmt.Errorf("unknown command %q; try kill or start", name)
	}
	return nil
}
