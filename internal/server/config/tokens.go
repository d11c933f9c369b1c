package config

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/yamldoc"
)

// tokensGiven says whether identity.jwt says anything but its defaults.
func (d *decoder) tokensGiven(i *Identity) bool {
	usual := Default().Identity.JWT
	return d.keysGiven("identity.jwt") || i.JWT.Leeway != usual.Leeway || i.JWT.AllowNoExpiry != usual.AllowNoExpiry ||
		i.JWT.Header != usual.Header
}

// adminTokensGiven says that of admin.jwt.
func (d *decoder) adminTokensGiven(j *AdminJWT) bool {
	usual := Default().AdminJWT
	return d.keysGiven("admin.jwt") || j.RoleClaim != usual.RoleClaim || j.TenantClaim != usual.TenantClaim ||
		j.NameClaim != usual.NameClaim
}

func (d *decoder) keysGiven(section string) bool {
	for _, key := range []string{"algorithms", "secret_file", "key_file", "key_url", "issuer", "audience"} {
		if d.written[section+"."+key] != nil {
			return true
		}
	}
	return false
}

func (d *decoder) checkTokens(i *Identity) {
	if !d.tokensGiven(i) {
		return
	}
	place := d.checkKeys("identity.jwt", "secret_file", "key_file", "key_url")
	if place == "" {
		return
	}
	for _, algorithm := range i.JWT.Algorithms {
		shared := strings.HasPrefix(algorithm, "HS")
		if slices.Contains(algorithms, algorithm) && shared != (place == "secret_file") {
			d.Bad(d.at("identity.jwt.algorithms"), "identity.jwt.algorithms: %s does not go with %s: HS256, HS384 and HS512 need "+
				"secret_file, the others key_file or key_url", algorithm, place)
		}
	}
	if i.JWTSecretFile != "" {
		d.checkSecret("identity.jwt.secret_file", i.JWTSecretFile, 32)
	}
}

// checkAdminTokens wants all that keeps tokens for somebody else out.
func (d *decoder) checkAdminTokens(j *AdminJWT) {
	if !d.adminTokensGiven(j) {
		return
	}
	d.checkKeys("admin.jwt", "key_file", "key_url")
	for _, key := range []string{"issuer", "audience"} {
		if d.missing("admin.jwt." + key) {
			d.Bad(d.at("admin.jwt."+key), "admin.jwt needs %s, or else tokens that the same keys have signed for others would be "+
				"believed", key)
		}
	}
}

// checkKeys wants algorithms and one of the places that keys can be in, which it returns if all is well.
func (d *decoder) checkKeys(section string, places ...string) string {
	if d.missing(section + ".algorithms") {
		d.Bad(d.at(section+".algorithms"), "%s needs algorithms, the only ones that tokens may be signed with: "+
			"algorithms: [RS256]", section)
	}
	var given []string
	for _, place := range places {
		if d.written[section+"."+place] != nil {
			given = append(given, place)
		}
	}
	if len(given) == 1 {
		return given[0]
	}
	have := "it has none"
	if len(given) > 0 {
		have = "it has " + strings.Join(given, " and ")
	}
	last := len(places) - 1
	d.Bad(d.at(section), "%s needs one of %s and %s, with which tokens are verified: %s", section,
		strings.Join(places[:last], ", "), places[last], have)
	return ""
}

// missing says whether a key has no value, or a list without any.
func (d *decoder) missing(key string) bool {
	n := d.written[key]
	return n == nil || n.Kind == yamldoc.List && len(n.Items) == 0
}

// askAdminTokens sees that package identity takes the keys of admin.jwt, if they are in a file.
func (d *decoder) askAdminTokens(j identity.JWT) {
	if !isRegular(j.KeyFile) {
		return
	}
	tokens, err := identity.NewTokens(j, slog.New(slog.DiscardHandler))
	if err != nil {
		d.Bad(d.at("admin.jwt.key_file"), "admin.jwt.key_file: %s", err)
		return
	}
	tokens.Close()
}
