package server

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/server/pgrules"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
	"github.com/headgate/headgate/ruledoc"
)

// Formats are the versions of what a server stores and speaks. Servers with equal versions can replace each other.
type Formats struct {
	// Redis is the version of the keys and their values.
	Redis string `json:"redis"`
	// Postgres is the number of the last migration.
	Postgres int64 `json:"postgres"`
	// LastGoodFile has the versions of last_good_file, which depend on where the rules are from.
	LastGoodFile struct {
		Rules    int `json:"rules"`
		Postgres int `json:"postgres"`
	} `json:"last_good_file"`
	ReservationToken int    `json:"reservation_token"`
	CheckAPI         string `json:"check_api"`
}

// CurrentFormats returns the versions of this program, each from the package that defines it.
func CurrentFormats() Formats {
	f := Formats{
		Redis:            redisclient.Format,
		Postgres:         pgrules.SchemaVersion(),
		ReservationToken: headgate.TokenVersion,
		CheckAPI:         string(checkv1.File_headgate_check_v1_check_proto.Package().Name()),
	}
	f.LastGoodFile.Rules, f.LastGoodFile.Postgres = ruledoc.LastGoodFormat, pgrules.LastGoodFormat
	return f
}
