package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
)

// regionTimeout is how long regions have to respond.
const regionTimeout = 4 * time.Second

// CheckRegions examines the certificate for other regions, and whether this host reaches the servers of all regions. There are no findings
// if the config has no regions.
func CheckRegions(ctx context.Context, c *config.Config, now time.Time) []Finding {
	r := &c.Regions
	if len(r.Members) == 0 {
		return nil
	}
	check := &regionCheck{regions: r}
	pair, authorities := check.certificate(now)
	if pair == nil {
		return check.findings
	}
	ctx, cancel := context.WithTimeout(ctx, regionTimeout)
	defer cancel()
	check.listener(ctx, pair, authorities)
	secret, err := config.ReadSecret(c.SecretFile)
	if err != nil {
		return check.findings // the check of files reports it
	}
	check.peers(ctx, pair, authorities, secret)
	return check.findings
}

// regionCheck is one examination of regions.
type regionCheck struct {
	regions  *config.Regions
	findings []Finding
}

func (r *regionCheck) add(check string, status Status, detail, remedy string) {
	r.findings = append(r.findings, Finding{Section: SectionRegions, Check: check, Status: status, Detail: detail, Remedy: remedy})
}

// own returns the address of this region, and its host.
func (r *regionCheck) own() (address, host string) {
	for _, m := range r.regions.Members {
		if m.Name == r.regions.Name {
			host, _, _ = net.SplitHostPort(m.Address) // the config is valid
			return m.Address, host
		}
	}
	return "", ""
}

// certificate checks the files of regions.tls. It returns nil if they cannot be used.
func (r *regionCheck) certificate(now time.Time) (*tls.Certificate, *x509.CertPool) {
	const name = "certificate"
	files := &r.regions.TLS
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		r.add(name, Problem, fmt.Sprintf("regions.tls.cert_file and key_file: %s: the server does not start", err),
			"write a certificate and its key in PEM to the files, readable for the user of the server")
		return nil, nil
	}
	text, err := os.ReadFile(files.CAFile)
	authorities := x509.NewCertPool()
	if err == nil && !authorities.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate", files.CAFile)
	}
	if err != nil {
		r.add(name, Problem, fmt.Sprintf("regions.tls.ca_file: %s: the server does not start", err), "write the authority that signs the certificates of all regions to the file, in PEM")
		return nil, nil
	}
	_, host := r.own()
	kind := "DNS:"
	if net.ParseIP(host) != nil {
		kind = "IP:"
	}
	issue := "issue a certificate with the subject alternative name " + kind + host + " for server and client authentication (extendedKeyUsage = serverAuth, clientAuth), " +
		"signed by the authority in " + files.CAFile + "; new connections use it at once"
	intermediates := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(parsed)
		}
	}
	var problem error
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{
			DNSName: host, Roots: authorities, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if problem == nil {
			problem = err
		}
	}
	end := pair.Leaf.NotAfter
	switch left := end.Sub(now); {
	case problem != nil:
		r.add(name, Problem, fmt.Sprintf("%s: %s: other regions reject the connection, and nothing is lent", files.CertFile, problem), issue)
	case left < certificateWarning:
		r.add(name, Warning, fmt.Sprintf("%s expires in %s, at %s", files.CertFile, wording.Count(int(left.Hours()/24), "day"), end.UTC().Format(time.RFC3339)), issue)
	default:
		r.add(name, OK, fmt.Sprintf("valid for %s until %s", host, end.UTC().Format(time.RFC3339)), "")
	}
	return &pair, authorities
}

// listener checks whether a server responds at this region's own address.
func (r *regionCheck) listener(ctx context.Context, pair *tls.Certificate, authorities *x509.CertPool) {
	const name = "listener"
	address, host := r.own()
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: regionTimeout / 2},
		Config:    &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: authorities, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"h2"}},
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		r.add(name, Warning, fmt.Sprintf("this host does not reach the address of its own region %s: %s: other regions may not, either", r.regions.Name, err), r.remedy(r.regions.Name, address, err.Error()))
		return
	}
	_ = conn.Close()
	r.add(name, OK, address+" responds with a valid certificate", "")
}

// peers checks whether the other regions respond, and have the same members, weights and secret.
func (r *regionCheck) peers(ctx context.Context, pair *tls.Certificate, authorities *x509.CertPool, secret []byte) {
	addresses := make([]regiongrpc.Member, 0, len(r.regions.Members))
	for _, m := range r.regions.Members {
		addresses = append(addresses, regiongrpc.Member{Name: m.Name, Address: m.Address})
	}
	shares := r.regions.Shares(secret)
	network, err := regiongrpc.New(regiongrpc.Options{
		Own: r.regions.Name, Members: addresses, Epoch: shares.Epoch(), Subjects: shares.Subjects(),
		Certificates: func() (tls.Certificate, *x509.CertPool) { return *pair, authorities },
		StoreTime:    func(context.Context) (time.Time, error) { return time.Time{}, errors.ErrUnsupported },
		Log:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.add("members", Problem, err.Error(), "correct regions.members")
		return
	}
	defer network.Close()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		network.Run(ctx)
	}()
	for !decided(network.State()) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	states := network.State()
	cancel()
	<-done
	for i := range states {
		r.peer(&states[i])
	}
}

// decided reports whether all regions have responded, or failed to.
func decided(states []regiongrpc.State) bool {
	for i := range states {
		if !states[i].Up && states[i].Problem == "" {
			return false
		}
	}
	return true
}

// peer adds the finding about another region.
func (r *regionCheck) peer(s *regiongrpc.State) {
	name := "region " + s.Peer
	switch {
	case s.Up && s.Problem == "":
		r.add(name, OK, fmt.Sprintf("responds with the same members and weights, version %s, round trip %s", s.Version, s.RTT.Round(100*time.Microsecond)), "")
	case s.Up && s.OtherSecret:
		r.add(name, Problem, "has another secret_file: its counters are those of other subjects, so that each region allows the limit",
			"copy the content of secret_file of one region to all others, and restart the servers")
	case s.Up && s.OtherMembers:
		r.add(name, Problem, "responds with other members or weights: nothing is lent, and the shares of all regions may add up to more than the limit",
			"compare regions.members of "+r.regions.Name+" and "+s.Peer+" with headgate config show, make them the same, and restart the servers")
	case s.Up:
		r.add(name, Problem, s.Address+": "+s.Problem, "correct regions.members."+s.Peer+".address")
	default:
		problem := s.Problem
		if problem == "" {
			problem = "no response within " + regionTimeout.String()
		}
		r.add(name, Problem, s.Address+" does not respond: "+problem+": its units cannot be borrowed", r.remedy(s.Peer, s.Address, problem))
	}
}

// remedy returns what to do about an address that does not respond.
func (r *regionCheck) remedy(name, address, problem string) string {
	host, port, _ := net.SplitHostPort(address) // the config is valid
	switch {
	case strings.Contains(problem, "no such host"):
		return "correct regions.members." + name + ".address, or add " + host + " to DNS"
	case strings.Contains(problem, "is not a member"), strings.Contains(problem, "name of this region"):
		return "make regions.members and regions.name of " + r.regions.Name + " and " + name + " agree"
	case strings.Contains(problem, "certificate"), strings.Contains(problem, "x509"), strings.Contains(problem, "tls:"):
		return "run headgate doctor on a server of " + name + " as well: its certificate must be valid for " + host + ", and both regions must have the same authority in regions.tls.ca_file"
	}
	return "start the servers of " + name + ", and let this host connect to their listen.regions: " + shellwords.Command("nc", "-vz", host, port)
}
