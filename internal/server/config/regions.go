package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/yamldoc"
)

// Regions are the regions whose servers decide requests together, each with a Redis of its own. The zero value means that there is
// only one.
type Regions struct {
	// Name is the region of this server.
	Name string
	// Members are all regions, this one included, in the order of their names.
	Members []RegionMember
	// HomeDeadline is how long a decision waits for another region that is the home of its subject.
	HomeDeadline time.Duration
	TLS          RegionsTLS
	// OnStoreLoss is what happens to shared limits whose counters this region's store has lost.
	OnStoreLoss OnStoreLoss
}

// OnStoreLoss is what happens to shared limits whose counters were lost.
type OnStoreLoss string

// The values of OnStoreLoss: such a counter starts at zero, or counts as used up until its window ends.
const (
	AllowLost OnStoreLoss = "allow"
	DenyLost  OnStoreLoss = "deny"
)

// RegionMember is one of the regions.
type RegionMember struct {
	Name string
	// Address is where the servers of other regions connect to this one.
	Address string
	// Weight determines the region's share of limits that regions share.
	Weight int
}

// RegionsTLS contains the certificate of this server for connections from and to other regions, and the authorities of theirs.
type RegionsTLS struct {
	CertFile, KeyFile, CAFile string
}

const (
	// regionsListener is the default of listen.regions if there are regions. Unlike the other listeners it is reachable from other
	// hosts, because it is for them only, and requires a client certificate.
	regionsListener = ":8084"
	minRegions      = 2
	maxRegions      = 16
	// defaultHomeDeadline allows for a round trip to the other side of the earth, and a lost packet on shorter ways.
	defaultHomeDeadline = 500 * time.Millisecond
)

// Fractions returns the part that each member has of what regions share, in the order of the members.
func (r *Regions) Fractions() []headgate.Fraction {
	all := make([]headgate.Fraction, len(r.Members))
	var sum int64
	for i := range r.Members {
		all[i].From = sum
		sum += int64(r.Members[i].Weight)
		all[i].To = sum
	}
	for i := range all {
		all[i].Of = sum
	}
	return all
}

// Shares returns the shares of the regions as this one sees them. secret is the content of secret_file.
func (r *Regions) Shares(secret []byte) *region.Shares {
	members := make([]region.Member, len(r.Members))
	for i, m := range r.Members {
		members[i] = region.Member{Name: m.Name, Weight: int64(m.Weight)}
	}
	return region.NewShares(members, r.Name).WithSecret(secret)
}

// shown returns the members by name.
func (r *Regions) shown() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, m := range r.Members {
		all[m.Name] = map[string]any{"address": m.Address, "weight": m.Weight}
	}
	return all
}

// memberKey returns the full name of a member's key.
func memberKey(name, key string) string {
	return "regions.members." + yamldoc.Shorten(name) + "." + key
}

// memberFields are the keys of a member.
var memberFields = []yamldoc.Field[*decoder, RegionMember]{
	{Key: "address", Read: func(d *decoder, n *yamldoc.Node, key string, m *RegionMember) {
		key = memberKey(m.Name, key)
		d.written[key] = n
		if d.unset[n] {
			return
		}
		if s, ok := d.notEmpty(n, key); ok {
			if problem := checkMemberAddress(s); problem != "" {
				d.Bad(n, "%s: %s", key, problem)
				return
			}
			m.Address = s
		}
	}},
	{Key: "weight", Read: func(d *decoder, n *yamldoc.Node, key string, m *RegionMember) {
		if d.unset[n] {
			return
		}
		remedy := fmt.Sprintf("must be 1 to %d", region.MaxWeight)
		if m.Weight = int(d.Int(d.as(n, yamldoc.Number), memberKey(m.Name, key), 1, remedy)); m.Weight > region.MaxWeight {
			d.Bad(n, "%s %d: %s", memberKey(m.Name, key), m.Weight, remedy)
			m.Weight = region.MaxWeight
		}
	}},
}

// members reads the regions by name.
func (d *decoder) members(n *yamldoc.Node, key string, c *Config) {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s must have the regions by name, like eu: {address: headgate.eu.example.com:8084}, not %s", key, n.Describe())
		return
	}
	taken := map[string]string{} // names in lower case
	for _, e := range n.Entries {
		if problem := checkRegionName(key, e.Key.Text); problem != "" {
			d.Bad(e.Key, "%s", problem)
		}
		lower := strings.ToLower(e.Key.Text)
		if other := taken[lower]; other != "" && other != e.Key.Text {
			d.Bad(e.Key, "%s: %s and %s differ only in upper and lower case: rename one of them", key, yamldoc.Shorten(other), yamldoc.Shorten(e.Key.Text))
		}
		taken[lower] = e.Key.Text
		m := RegionMember{Name: e.Key.Text, Weight: 1}
		if d.HasValue(e) {
			before := d.Report.Count()
			yamldoc.Fields(d, e.Value, key+"."+yamldoc.Shorten(m.Name), memberFields, &m)
			if d.Report.Count() == before && d.written[memberKey(m.Name, "address")] == nil {
				d.Bad(e.Key, "%s.%s needs address: host:port, where the servers of other regions connect to this one", key, yamldoc.Shorten(m.Name))
			}
		}
		c.Regions.Members = append(c.Regions.Members, m)
	}
	slices.SortFunc(c.Regions.Members, func(a, b RegionMember) int { return cmp.Compare(a.Name, b.Name) })
}

// validRegion matches the names of regions, which have the same characters as namespaces in Redis.
var validRegion = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

func checkRegionName(key, s string) string {
	if validRegion.MatchString(s) {
		return ""
	}
	return fmt.Sprintf("%s: %q is not a name of a region: write 1 to 32 ASCII letters, digits, dots, dashes or underscores", key, yamldoc.Shorten(s))
}

// checkMemberAddress describes the problem of an address that other servers connect to, or returns "". It does not quote the address,
// which may contain a password by mistake.
func checkMemberAddress(s string) string {
	const remedy = ": write one like headgate.eu.example.com:8084"
	host, port, err := net.SplitHostPort(s)
	number, badPort := strconv.ParseUint(port, 10, 16)
	_, badHost := netip.ParseAddr(host)
	switch {
	case err != nil || badPort != nil || number == 0:
		return "not an address with a port of 1 to 65535" + remedy
	case isUnspecified(host):
		return "not an address to connect to" + remedy
	case badHost != nil && strings.Trim(host, headerLetters) != "":
		return "neither an IP address nor a host name" + remedy
	}
	return ""
}

// setRegionsListener sets the default of listen.regions, which depends on whether there are regions.
func (d *decoder) setRegionsListener(c *Config) {
	if d.written["regions"] != nil && d.written["listen.regions"] == nil {
		c.Listen.Regions = regionsListener
	}
}

// checkRegions validates the keys of regions in combination.
func (d *decoder) checkRegions(c *Config) {
	section := d.written["regions"]
	switch {
	case section != nil && section.Kind != yamldoc.Mapping:
		return // already reported
	case section == nil:
		d.badIf(c.Listen.Regions != "", "listen.regions", "is given, but there are no regions to connect: write regions with name, members and tls, "+
			"or remove the key")
		return
	}
	d.badIf(c.Store == StoreMemory, "regions", "needs store: redis, because all servers of a region share its counters: remove store: memory")
	d.badIf(d.written["listen.regions"] != nil && d.written["listen.regions"].Text == off, "listen.regions",
		"is off, but the servers of other regions connect to it: write an address, or remove the key")
	name, members := d.written["regions.name"] != nil, d.written["regions.members"] != nil
	d.badIf(!name, "regions", "needs name, the region of this server among members")
	d.badIf(!members, "regions", "needs members, all regions with their addresses, the same in every region: "+
		"members: {eu: {address: headgate.eu.example.com:8084}, us: {address: …}}")
	if members {
		d.checkMembers(c)
	}
	d.checkRegionsTLS(&c.Regions.TLS)
}

func (d *decoder) checkMembers(c *Config) {
	r := &c.Regions
	if d.written["regions.members"].Kind != yamldoc.Mapping {
		return
	}
	weights := 0
	names := make([]string, len(r.Members))
	taken := map[string]string{} // names of members by address
	for i, m := range r.Members {
		names[i], weights = m.Name, weights+m.Weight
		if m.Address == "" {
			continue
		}
		n, key := d.written[memberKey(m.Name, "address")], memberKey(m.Name, "address")
		host, _, _ := net.SplitHostPort(m.Address) // it is valid
		if netaddr.IsLoopback(host) && netaddr.IsReachable(c.Listen.Regions) {
			d.Bad(n, "%s: the servers of other regions cannot reach a loopback address: write another one; "+
				"if all regions run on this host, also write listen.regions: 127.0.0.1%s", key, regionsListener)
		}
		if other := taken[strings.ToLower(m.Address)]; other != "" {
			d.Bad(n, "%s is also the address of %s: give each region an address of its own", key, other)
		}
		taken[strings.ToLower(m.Address)] = m.Name
	}
	if l := len(names); l < minRegions || l > maxRegions {
		d.Bad(d.at("regions.members"), "regions.members: number of regions %d: must be %d to %d; without other regions, remove regions", l, minRegions, maxRegions)
	}
	d.badIf(weights > region.MaxTotalWeight, "regions.members",
		fmt.Sprintf("have weights of %d in total: must be at most %d: divide all of them by the same number", weights, region.MaxTotalWeight))
	d.badIf(r.Name != "" && !slices.Contains(names, r.Name), "regions.name",
		fmt.Sprintf("is %q, which is not among regions.members: write one of %s", r.Name, strings.Join(names, ", ")))
}

// checkRegionsTLS requires certificates: every client of listen.regions can take units of every shared limit.
func (d *decoder) checkRegionsTLS(t *RegionsTLS) {
	var missing []string
	for _, key := range []string{"cert_file", "key_file", "ca_file"} {
		if d.written["regions.tls."+key] == nil {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		d.badIf(true, "regions.tls", "needs "+strings.Join(missing, ", ")+": the servers of all regions authenticate each other with certificates")
		return
	}
	d.pair("regions.tls.cert_file", t.CertFile, "regions.tls.key_file", t.KeyFile)
	d.authorities("regions.tls.ca_file", t.CAFile)
}
