package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/cmd/headgate/internal/doctor"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

// slowMachine is a part of a config with which a busy machine does not make latency a finding.
const slowMachine = "redis: {deadline: 1s, address: \""

// examineAt runs doctor with a config for a Redis.
func examineAt(t *testing.T, code int, address string) doctorReport {
	t.Helper()
	_, file := configure(t, slowMachine+address+"\"}\n", fivePerHour)
	return startJSON[doctorReport](t, code, "doctor", "--config", file)
}

// eventuallyFinds waits until doctor has a finding with a text.
func eventuallyFinds(t *testing.T, address, text string) {
	t.Helper()
	file := writeDoctorConfig(t, address)
	eventually(t, text, func() bool { return strings.Contains(start(t, "doctor", "--config", file).out, text) })
}

// expectFinding checks that a check has a finding with a status and a text, and returns it.
func expectFinding(t *testing.T, r doctorReport, check string, status doctor.Status, text string) doctor.Finding {
	t.Helper()
	var others []doctor.Finding
	for _, f := range r.Findings {
		if f.Check == check {
			others = append(others, f)
		}
		if f.Check == check && f.Status == status && strings.Contains(f.Detail+" fix: "+f.Remedy, text) {
			if f.Remedy == "" && status == doctor.Problem {
				t.Errorf("%+v has no remedy", f)
			}
			return f
		}
	}
	t.Errorf("no %s of %s with %q in %+v", status, check, text, others)
	return doctor.Finding{}
}

func TestDoctorHealthy(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis, "--appendonly", "yes")
	r := examineAt(t, 0, "redis://"+server.Addr())
	if !r.OK || r.Problems > 0 {
		t.Errorf("%+v", r)
	}
	for _, check := range []string{"connection", "version", "permissions", "eviction", "memory", "persistence", "replication", "lazyfree", "clock", "latency", "nodes"} {
		expectFinding(t, r, check, doctor.OK, "")
	}
	if keys, _ := server.Must(t, "KEYS", "*").([]any); len(keys) > 0 {
		t.Errorf("doctor left %v in Redis", keys)
	}
	o := start(t, "doctor", "--config", writeDoctorConfig(t, "redis://"+server.Addr()))
	if o.code != 0 || !strings.Contains(o.out, "Redis redis://"+server.Addr()+"\n  ok ") || !strings.Contains(o.out, "\n0 problems, ") {
		t.Errorf("%+v", o)
	}
}

func writeDoctorConfig(t *testing.T, address string) string {
	t.Helper()
	_, file := configure(t, slowMachine+address+"\"}\n", fivePerHour)
	return file
}

// TestDoctorSettings checks the findings of each unsuitable setting of Redis.
func TestDoctorSettings(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	for _, c := range []struct {
		check  string
		status doctor.Status
		text   string
		set    []string // settings and values
	}{
		{"eviction", doctor.Problem, "CONFIG SET maxmemory-policy noeviction", []string{"maxmemory-policy", "allkeys-lru"}},
		{"eviction", doctor.OK, "noeviction", []string{"maxmemory-policy", "noeviction"}},
		{"persistence", doctor.Warning, "none: a restart of Redis starts all limits at zero", nil},
		{"persistence", doctor.Warning, "snapshots only (save 60 1)", []string{"save", "60 1"}},
		{"persistence", doctor.Warning, "appendfsync no", []string{"appendonly", "yes", "appendfsync", "no"}},
		{"persistence", doctor.OK, "appendfsync always", []string{"appendfsync", "always"}},
		{"lazyfree", doctor.OK, "lazyfree-lazy-expire yes", []string{"lazyfree-lazy-expire", "yes"}},
		{"memory", doctor.OK, "of maxmemory 100.0 MB", []string{"maxmemory", "100mb"}},
		{"memory", doctor.Problem, "a full Redis rejects charges", []string{"maxmemory", "1kb"}},
		{"permissions", doctor.Problem, "its memory is full", nil},
	} {
		if len(c.set) > 0 {
			server.Must(t, append([]string{"CONFIG", "SET"}, c.set...)...)
		}
		code := 0
		if c.status == doctor.Problem {
			code = 1
		}
		expectFinding(t, examineAt(t, code, "redis://"+server.Addr()), c.check, c.status, c.text)
	}
}

// TestDoctorPermissions removes each command from the documented user, one at a time.
func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?s)ACL SETUSER headgate .*?\n` + "```").FindString(string(text))
	documented := strings.Fields(strings.NewReplacer("```", "", "\\\n", " ").Replace(line))
	inRemedy := "'(" + strings.Join(documented[5:], " ") + ")'" // all but ACL SETUSER headgate on >secret
	server := testenv.Start(t, testenv.Redis)
	server.Must(t, documented...)
	address := "redis://headgate:secret@" + server.Addr()
	r := examineAt(t, 0, address)
	expectFinding(t, r, "permissions", doctor.OK, "")
	expectFinding(t, r, "settings", doctor.Skipped, "CONFIG GET")
	expectFinding(t, r, "persistence", doctor.Warning, "no append-only file")

	scripts, err := filepath.Glob("../../redisstore/lua/*.lua")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	commands := map[string]bool{"eval": true, "evalsha": true, "script|load": true, "script|exists": true, "set": true, "expire": true, "exists": true, "role": true}
	for _, file := range scripts {
		if strings.HasSuffix(file, "weights.lua") {
			continue // only servers with regions use it
		}
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(script), -1) {
			commands[strings.ToLower(call[1])] = true
		}
	}
	delete(commands, "publish")
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		server.Must(t, "ACL", "SETUSER", "headgate", "-"+command)
		f := expectFinding(t, examineAt(t, 1, address), "permissions", doctor.Problem, command)
		if strings.Count(f.Detail, ",") > 2 { // without eval, scripts cannot be probed
			t.Errorf("without %s: %+v", command, f)
		}
		server.Must(t, documented...)
	}
	for _, command := range []string{"-publish", "-subscribe", "resetchannels"} {
		server.Must(t, "ACL", "SETUSER", "headgate", command)
		expectFinding(t, examineAt(t, 0, address), "permissions", doctor.Warning, inRemedy)
		server.Must(t, documented...)
	}
	server.Must(t, "ACL", "SETUSER", "headgate", "-info")
	expectFinding(t, examineAt(t, 0, address), "info", doctor.Warning, "+info")
	server.Must(t, "ACL", "SETUSER", "headgate", "+info", "resetkeys", "~other:*")
	expectFinding(t, examineAt(t, 1, address), "permissions", doctor.Problem, inRemedy)
	if keys, _ := server.Must(t, "KEYS", "*").([]any); len(keys) > 0 {
		t.Errorf("doctor left %v in Redis", keys)
	}
}

// TestDoctorFixes runs the commands that doctor prints in a shell: one round must be enough.
func TestDoctorFixes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ours := testenv.NewCertificate(t, nil, &x509.Certificate{})
	writeFile(t, in("the cert"), ours.CertPEM)
	writeFile(t, in("the key"), ours.KeyPEM)
	port := freePort(t)
	const enough = "~hg2:headgate:* &hg2:headgate:* "
	for name, c := range map[string]struct {
		set     []string
		address string // after the scheme; %s is the address of the server
		config  string
		stdin   string
	}{
		"few commands": {set: strings.Fields("ACL SETUSER o'ne on >secret " + enough + "+@connection"), address: "redis://o'ne:secret@%s"},
		"one command":  {set: strings.Fields("ACL SETUSER one on >secret ~* &* +@all -hget -script|load -time"), address: "redis://one:secret@%s"},
		"no keys":      {set: strings.Fields("ACL SETUSER one on >secret +@all"), address: "redis://one:secret@%s"},
		"no channels":  {set: strings.Fields("ACL SETUSER one on >secret ~* resetchannels +@all"), address: "redis://one:secret@%s"},
		"nothing":      {set: strings.Fields("ACL SETUSER one on >secret"), address: "redis://one:secret@%s"},
		"default user": {set: strings.Fields("ACL SETUSER default >s3cret -hset"), address: "redis://:s3cret@%s", stdin: "s3cret\n"},
		"eviction":     {set: strings.Fields("CONFIG SET maxmemory-policy allkeys-lru maxmemory 1gb"), address: "redis://%s"},
		"persistence":  {set: strings.Fields("CONFIG SET appendonly no"), address: "redis://%s"},
		"client certificate": {
			set:     []string{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "tls-cert-file", in("the cert"), "tls-key-file", in("the key"), "tls-ca-cert-file", in("the cert"), "tls-port", port},
			address: "rediss://127.0.0.1:" + port, config: ", tls: {ca_file: \"" + in("the cert") + "\", cert_file: \"" + in("the cert") + "\", key_file: \"" + in("the key") + "\"}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Start(t, testenv.Redis, "--appendonly", "yes")
			server.Must(t, c.set...)
			address := strings.ReplaceAll(c.address, "%s", server.Addr())
			_, file := configure(t, slowMachine+address+"\""+c.config+"}\n", fivePerHour)
			run := func() (fixes []string) {
				t.Helper()
				o := start(t, "doctor", "--config", file)
				for _, fix := range regexp.MustCompile(`fix: (.*redis-cli .*)`).FindAllStringSubmatch(o.out, -1) {
					if !strings.Contains(fix[1], "CONFIG GET") { // of a check that was skipped
						fixes = append(fixes, fix[1])
					}
				}
				return fixes
			}
			fixes := run()
			if len(fixes) == 0 {
				t.Fatal("no fix")
			}
			for _, fix := range fixes {
				command := exec.CommandContext(t.Context(), "bash", "-c", fix)
				command.Stdin = strings.NewReader(c.stdin)
				out, err := command.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "OK") {
					t.Errorf("%s: %s, %v", fix, out, err)
				}
			}
			if again := run(); len(again) > 0 {
				t.Errorf("after %q:\n%q", fixes, again)
			}
		})
	}
}

// TestDoctorCoversStore checks that doctor tries every command that a store uses.
func TestDoctorCoversStore(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	used, tried := testenv.Start(t, testenv.Redis), testenv.Start(t, testenv.Redis)
	store, err := redisstore.Open("redis://" + used.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	subscribed := make(chan struct{})
	var once sync.Once
	var listening sync.WaitGroup
	listening.Go(func() {
		_ = store.Subscribe(ctx, []string{"news"}, func(string, []byte) { once.Do(func() { close(subscribed) }) })
	})
	<-subscribed
	for _, algorithm := range []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog} {
		limit := headgate.PerMinute(2)
		limit.Algorithm = algorithm
		for range 3 {
			if _, err := headgate.Take(t.Context(), store, limit, "a", "b"); err != nil {
				t.Error(err)
			}
		}
	}
	_, err = store.Servers(t.Context())
	if err := store.Publish(t.Context(), "news", nil); err != nil {
		t.Error(err)
	}
	cancel()
	listening.Wait()
	if err != nil {
		t.Error(err)
	}
	examineAt(t, 0, "redis://"+tried.Addr())
	has := tried.Info(t, "commandstats")
	for command := range used.Info(t, "commandstats") {
		if has[command] == "" {
			t.Errorf("doctor does not try %s", command)
		}
	}
}

// TestDoctorNodes compares the nodes that run with the config.
func TestDoctorNodes(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	for range 2 {
		store, err := redisstore.Open("redis://" + server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		if err := store.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f := expectFinding(t, examineAt(t, 0, "redis://"+server.Addr()), "nodes", doctor.Warning, "2 nodes are running, and nodes in the config is 1")
	if f.Remedy != "nodes: 2" || !strings.Contains(f.Detail, "1/1 of each limit instead of 1/2") {
		t.Errorf("%+v", f)
	}
}

// proxyTo forwards connections to a server, delays what it answers, and replaces a text in it by another of the same length.
func proxyTo(t *testing.T, target string, delay time.Duration, old, with string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	forward := func(from, to net.Conn, change func([]byte) []byte) {
		defer from.Close()
		defer to.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if _, err := to.Write(change(buffer[:n])); err != nil {
				return
			}
		}
	}
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() { forward(client, server, func(b []byte) []byte { return b }) })
			running.Go(func() {
				forward(server, client, func(b []byte) []byte {
					time.Sleep(delay)
					return bytes.ReplaceAll(b, []byte(old), []byte(with))
				})
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// TestDoctorOldVersion has an older Redis emulated, because none is installed.
func TestDoctorOldVersion(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	version := server.Info(t, "server")["redis_version"]
	old := "6" + version[1:]
	address := proxyTo(t, server.Addr(), 0, "redis_version:"+version, "redis_version:"+old)
	expectFinding(t, examineAt(t, 1, "redis://"+address), "version", doctor.Problem, "Redis "+old)
}

func TestDoctorSlow(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	address := proxyTo(t, server.Addr(), 20*time.Millisecond, "never", "never")
	_, file := configure(t, "redis: {address: \"redis://"+address+"\"}\n", fivePerHour)
	r := startJSON[doctorReport](t, 1, "doctor", "--config", file)
	expectFinding(t, r, "latency", doctor.Problem, "most decisions are made without Redis")
}

func TestDoctorClock(t *testing.T) {
	t.Parallel()
	server := testenv.StartFaked(t, testenv.Redis)
	server.StepClock(t, 5*time.Second)
	expectFinding(t, examineAt(t, 0, "redis://"+server.Addr()), "clock", doctor.Warning, "ahead of this host's")
	server.StepClock(t, -10*time.Second)
	expectFinding(t, examineAt(t, 0, "redis://"+server.Addr()), "clock", doctor.Warning, "behind this host's")
}

func TestDoctorUnavailable(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	server.Must(t, "CONFIG", "SET", "requirepass", "s3cret")
	r := examineAt(t, 1, "redis://"+server.Addr())
	expectFinding(t, r, "connection", doctor.Problem, "set redis.password_file")
	r = examineAt(t, 1, "redis://:wrong@"+server.Addr())
	expectFinding(t, r, "connection", doctor.Problem, "correct redis.username and the password")
	server.Kill()
	r = examineAt(t, 1, "redis://"+server.Addr())
	expectFinding(t, r, "connection", doctor.Problem, "start Redis")
	o := start(t, "doctor", "--config", writeDoctorConfig(t, "redis://:hunter2@"+server.Addr()))
	if o.code != 1 || strings.Contains(o.out, "hunter2") || !strings.Contains(o.out, "fix: start Redis") {
		t.Errorf("%+v", o)
	}
}

// TestDoctorWrongAddress checks the remedies for addresses of the wrong kind.
func TestDoctorWrongAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ours := testenv.NewCertificate(t, nil, &x509.Certificate{})
	writeFile(t, in("cert"), ours.CertPEM)
	writeFile(t, in("key"), ours.KeyPEM)
	server, port := testenv.Start(t, testenv.Redis), freePort(t)
	server.Must(t, "CONFIG", "SET", "tls-cert-file", in("cert"), "tls-key-file", in("key"), "tls-ca-cert-file", in("cert"), "tls-auth-clients", "yes", "tls-port", port)
	encrypted := "127.0.0.1:" + port
	for _, c := range []struct{ address, check, text string }{
		{"redis://" + encrypted, "connection", "redis.address: rediss://" + encrypted},
		{"cluster://" + encrypted, "connection", "redis.tls: {enabled: true}"},
		{"rediss://" + server.Addr(), "connection", "write redis:// instead of rediss://"},
		{"rediss://" + encrypted + `", tls: {ca_file: "` + in("cert") + `"}, namespace: "headgate`, "connection", "redis.tls.cert_file and redis.tls.key_file"},
		{"cluster://" + server.Addr(), "cluster", "redis.address: redis://" + server.Addr()},
		{"sentinel://" + server.Addr() + "/mymaster", "sentinel", "not a sentinel"},
		{"sentinel://" + server.Addr() + "/mymaster", "connection", "not a sentinel"},
	} {
		expectFinding(t, examineAt(t, 1, c.address), c.check, doctor.Problem, c.text)
	}
	server.Must(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	expectFinding(t, examineAt(t, 1, "redis://"+server.Addr()), "permissions", doctor.Problem, "CONFIG SET min-replicas-to-write 0")
}

func TestDoctorReplica(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server, primary := testenv.Start(t, testenv.Redis), testenv.Start(t, testenv.Redis)
	host, port, _ := net.SplitHostPort(primary.Addr())
	server.Must(t, "REPLICAOF", host, port)
	expectFinding(t, examineAt(t, 1, "redis://"+server.Addr()), "primary", doctor.Problem, "sentinel://")
}

func TestDoctorValkey(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Valkey)
	r := examineAt(t, 0, "redis://"+server.Addr())
	expectFinding(t, r, "version", doctor.OK, "Valkey 8")
	expectFinding(t, r, "permissions", doctor.OK, "")
	version := server.Info(t, "server")["valkey_version"]
	address := proxyTo(t, server.Addr(), 0, "valkey_version:"+version, "valkey_version:9"+version[1:])
	expectFinding(t, examineAt(t, 0, "redis://"+address), "version", doctor.Warning, "not tested")
}

func TestDoctorSentinel(t *testing.T) {
	t.Parallel()
	s := testenv.StartSentinels(t, testenv.Redis)
	address := "sentinel://" + strings.Join(s.Addrs(), ",") + "/" + s.Master()
	r := examineAt(t, 0, address)
	for _, check := range []string{"sentinel", "replica", "permissions", "replication"} {
		expectFinding(t, r, check, doctor.OK, "")
	}
	// Users are not replicated: the failover would lock the nodes out.
	primary := s.Primary(t)
	primary.Must(t, "ACL", "SETUSER", "headgate", "on", ">secret", "~*", "&*", "+@all")
	r = examineAt(t, 1, strings.Replace(address, "://", "://headgate:secret@", 1))
	expectFinding(t, r, "replica", doctor.Problem, "create the user on every server")
	for _, server := range s.Servers() {
		if server != primary {
			server.Kill()
		}
	}
	eventuallyFinds(t, address, "no replica: if this primary fails")
	eventuallyFinds(t, address, "no replica is in sync")
}

func TestDoctorCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartCluster(t, testenv.Redis, "--cluster-require-full-coverage", "no")
	address := "cluster://" + strings.Join(cluster.Addrs(), ",")
	r := examineAt(t, 0, address)
	expectFinding(t, r, "cluster", doctor.OK, "3 shards serve all slots")
	f := expectFinding(t, r, "permissions", doctor.OK, "")
	if len(f.Servers) > 0 {
		t.Errorf("not merged: %+v", f)
	}
	measured := 0
	for _, f := range r.Findings {
		if f.Check == "latency" {
			measured += cmp.Or(len(f.Servers), 3) // no servers means all
		}
	}
	if measured != 3 {
		t.Errorf("latency of %d servers", measured)
	}
	expectFinding(t, examineAt(t, 1, "redis://"+cluster.Addrs()[0]), "cluster", doctor.Problem, "cluster://")
	cluster.Servers()[0].Must(t, "CONFIG", "SET", "cluster-require-full-coverage", "yes", "cluster-node-timeout", "15000")
	r = examineAt(t, 0, address)
	f = expectFinding(t, r, "cluster", doctor.Warning, "cluster-require-full-coverage no")
	if len(f.Servers) != 1 || f.Servers[0] != cluster.Addrs()[0] {
		t.Errorf("%+v", f)
	}
	expectFinding(t, r, "cluster", doctor.Warning, "cluster-node-timeout 15000")
	cluster.Servers()[1].Must(t, "CONFIG", "SET", "cluster-require-full-coverage", "yes")
	f = expectFinding(t, examineAt(t, 0, address), "cluster", doctor.Warning, "cluster-require-full-coverage no")
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", f.Remedy).CombinedOutput(); err != nil || string(out) != "OK\nOK\n" {
		t.Errorf("%s: %s, %v", f.Remedy, out, err)
	}
	cluster.Servers()[0].Must(t, "CONFIG", "SET", "cluster-require-full-coverage", "no", "cluster-node-timeout", "1000")
	for _, server := range []int{3, 0} { // a replica, and then its primary, which nothing can replace
		cluster.Servers()[server].Kill()
		eventuallyFinds(t, address, cluster.Addrs()[server]+" is down")
	}
	expectFinding(t, examineAt(t, 1, address), "cluster", doctor.Problem, "slots are not served")
	// A client of a Cluster refreshes what it knows for up to five seconds after it was closed.
	eventually(t, "the clients' goroutines end", func() bool {
		stacks := make([]byte, 4<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "DelayDo")
	})
}

func TestDoctorPostgres(t *testing.T) {
	t.Parallel()
	redis, db := testenv.Start(t, testenv.Redis), testenv.StartPostgres(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, anyPorts+slowMachine+"redis://"+redis.Addr()+"\"}\npostgres: {address: \""+db.URL()+"\"}\n")
	r := startJSON[doctorReport](t, 1, "doctor", "--config", file)
	expectFinding(t, r, "schema", doctor.Problem, "headgate migrate --config "+file)
	expectFinding(t, r, "last_good_file", doctor.Warning, "not set")
	if o := start(t, "migrate", "--config", file); o.code != 0 {
		t.Fatal(o)
	}
	r = startJSON[doctorReport](t, 0, "doctor", "--config", file)
	expectFinding(t, r, "schema", doctor.OK, "version")
	expectFinding(t, r, "rules", doctor.Warning, "none are published")
}

// TestDoctorPostgresRights takes rights from a user, and runs the commands that doctor prints.
func TestDoctorPostgresRights(t *testing.T) {
	t.Parallel()
	db := testenv.StartPostgres(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	use := func(old, with string) {
		writeFile(t, file, anyPorts+"store: memory\npostgres: {address: \""+strings.Replace(db.URL(), old, with, 1)+"\"}\n")
	}
	use("", "")
	if o := start(t, "migrate", "--config", file); o.code != 0 {
		t.Fatal(o)
	}
	db.Execute(t, `CREATE ROLE "the node" LOGIN`)
	use("postgres@", "the%20node@")
	for _, c := range []struct{ set, detail, fix string }{
		{"SELECT 1", "may not read and change", "GRANT SELECT, "},
		{"REVOKE INSERT ON rate_limit_nodes FROM \"the node\"", "may not read and change rate_limit_nodes:", "GRANT SELECT, "},
		{"ALTER DATABASE postgres SET default_transaction_read_only = on", "default_transaction_read_only is on", "ALTER ROLE "},
	} {
		db.Execute(t, c.set)
		f := expectFinding(t, startJSON[doctorReport](t, 1, "doctor", "--config", file), "rights", doctor.Problem, c.detail)
		if !strings.Contains(f.Remedy, c.fix) {
			t.Errorf("%+v", f)
		}
		command := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(f.Remedy, "psql ", "psql -U postgres ", 1))
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %s, %v", f.Remedy, out, err)
		}
		startJSON[doctorReport](t, 0, "doctor", "--config", file)
	}
	use("/postgres?", "/missing?")
	expectFinding(t, startJSON[doctorReport](t, 1, "doctor", "--config", file), "connection", doctor.Problem, "create the database")
}

func TestDoctorMemory(t *testing.T) {
	t.Parallel()
	_, file := configure(t, "store: memory\n", fivePerHour)
	r := startJSON[doctorReport](t, 0, "doctor", "--config", file)
	expectFinding(t, r, "store", doctor.OK, "memory")
	if r.Redis != "" || slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.Section == doctor.SectionRedis }) {
		t.Errorf("%+v", r)
	}
}

func TestDoctorRules(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	for rules, want := range map[string]doctor.Finding{
		"rules: [{id: a, by: [ip]}]":   {Status: doctor.Problem, Detail: "1 problem in the rules"},
		"rules: []":                    {Status: doctor.Problem, Detail: "there are no rules"},
		"mode: shadow\n" + fivePerHour: {Status: doctor.Warning, Detail: "no requests are denied"},
		"rules: [{id: a, by: [ip], limit: 5/hour, cost: {from: header.x}}]\n": {Status: doctor.Warning, Detail: "a request may cost up to"},
	} {
		_, file := configure(t, slowMachine+"redis://"+redis.Addr()+"\"}\n", rules)
		code := 0
		if want.Status == doctor.Problem {
			code = 1
		}
		r := startJSON[doctorReport](t, code, "doctor", "--config", file)
		expectFinding(t, r, "rules", want.Status, want.Detail)
	}
}
