package config

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/yamldoc"
)

// tokensGiven reports whether identity.jwt differs from its defaults.
func (d *decoder) tokensGiven(i *Identity) bool {
	defaults := Default().Identity.JWT
	return d.keysGiven("identity.jwt") || i.JWT.Leeway != defaults.Leeway || i.JWT.AllowNoExpiry != defaults.AllowNoExpiry ||
		i.JWT.Header != defaults.Header
}

// adminTokensGiven reports whether admin.jwt differs from its defaults.
func (d *decoder) adminTokensGiven(j *AdminJWT) bool {
	defaults := Default().AdminJWT
	return d.keysGiven("admin.jwt") || j.RoleClaim != defaults.RoleClaim || j.TenantClaim != defaults.TenantClaim ||
		j.NameClaim != defaults.NameClaim
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
			d.Bad(d.at("identity.jwt.algorithms"), "identity.jwt.algorithms: %s cannot be used with %s: HS256, HS384 and HS512 need "+
				"secret_file, the others key_file or key_url", algorithm, place)
		}
	}
	if i.JWTSecretFile != "" {
		d.checkSecret("identity.jwt.secret_file", i.JWTSecretFile, 32)
	}
}

// checkAdminTokens requires everything that is needed to reject tokens that are meant for other services.
func (d *decoder) checkAdminTokens(j *AdminJWT) {
	if !d.adminTokensGiven(j) {
		return
	}
	d.checkKeys("admin.jwt", "key_file", "key_url")
	for _, key := range []string{"issuer", "audience"} {
		if d.missing("admin.jwt." + key) {
			d.Bad(d.at("admin.jwt."+key), "admin.jwt needs %s: without it, tokens signed with the same keys for other services would be "+
				"accepted", key)
		}
	}
}

// checkKeys requires algorithms and exactly one source of keys. It returns that source, or "" if there are none or several.
func (d *decoder) checkKeys(section string, places ...string) string {
	if d.missing(section + ".algorithms") {
		d.Bad(d.at(section+".algorithms"), "%s needs algorithms, the list of accepted signature algorithms: "+
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
	d.Bad(d.at(section), "%s needs exactly one of %s and %s to verify tokens: %s", section,
		strings.Join(places[:last], ", "), places[last], have)
	return ""
}

// missing reports whether a key has no value or an empty list.
func (d *decoder) missing(key string) bool {
	n := d.written[key]
	return n == nil || n.Kind == yamldoc.List && len(n.Items) == 0
}

// checkAdminKeys checks that package identity accepts the keys of admin.jwt, if they are in a file.
func (d *decoder) checkAdminKeys(j identity.JWT) {
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
