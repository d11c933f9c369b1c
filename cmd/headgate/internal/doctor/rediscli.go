package doctor

import (
	"net"
	"strings"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
)

// rights are the commands that nodes need, as docs/redis.md has them.
const rights = "+@read +@write +@scripting +@pubsub +@connection -@dangerous +time +info +role +cluster|slots +cluster|shards"

// grant returns the command that gives the user all rights of a node: with some of them, the next missing one is found only by the next
// examination. It adds a selector, which revokes nothing, and is valid also for users with all keys or channels.
func (c *redisCheck) grant(address string) string {
	user := c.option.Username
	if user == "" {
		user = "default"
	}
	return c.cli(address, "ACL", "SETUSER", user, "(~"+c.prefix+"* &"+c.prefix+"* "+rights+")") + c.hint("and keep it: ACL SAVE, or CONFIG REWRITE")
}

// configSet returns the command that changes a setting of a running server, with a reminder for its next start.
func (c *redisCheck) configSet(address, setting, value string) string {
	return c.cli(address, "CONFIG", "SET", setting, value) + c.hint("and in redis.conf: "+setting+" "+value)
}

// hint returns a comment for the end of a command that only an administrator of Redis may run.
func (c *redisCheck) hint(text string) string {
	if c.option.Password != "" && !c.isDefaultUser() {
		text = "as a user who may: --user NAME --askpass; " + text
	}
	return " # " + text
}

func (c *redisCheck) isDefaultUser() bool {
	return c.option.Username == "" || c.option.Username == "default"
}

// cli returns a command line for a server.
func (c *redisCheck) cli(address string, words ...string) string {
	flags := []string{}
	if c.option.TLSConfig != nil {
		flags = append(flags, "--tls")
		for _, file := range [][2]string{{"--cacert", c.TLSFiles.CAFile}, {"--cert", c.TLSFiles.CertFile}, {"--key", c.TLSFiles.KeyFile}, {"--sni", c.TLSFiles.ServerName}} {
			if file[1] != "" {
				flags = append(flags, file[0], file[1])
			}
		}
	}
	if c.option.Password != "" && c.isDefaultUser() {
		flags = append(flags, "--askpass")
	}
	return "redis-cli " + cliTarget(address) + " " + shellwords.Command(append(flags, words...)...)
}

// anyServer are the flags of redis-cli if the server is not known.
const anyServer = "-h HOST -p PORT"

// cliTarget returns the flags of redis-cli that select a server.
func cliTarget(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return anyServer
	}
	return shellwords.Command("-h", host, "-p", port)
}

// forServers returns a remedy for several servers: a loop, if it is a command of redis-cli.
func forServers(remedy string, servers []string) string {
	command, comment, _ := strings.Cut(remedy, " # ")
	if !strings.HasPrefix(command, "redis-cli "+anyServer) {
		return remedy
	}
	command = strings.Replace(command, anyServer, `-u "redis://$server"`, 1)
	if comment != "" {
		comment = " # " + comment
	}
	return "for server in " + shellwords.Command(servers...) + "; do " + command + "; done" + comment
}
