package identity

import "github.com/headgate/headgate"

// Put notes one value that a proxy has taken from a request, as Attributes would have it: the readings of a path, a method in
// capitals, an address by its prefix, an API key as its hash. Other attributes are taken as they are.
func (r *Resolver) Put(attrs headgate.Attributes, name, value string) {
	switch name {
	case "path":
		path, other := Path(value)
		put(attrs, "path", path)
		put(attrs, headgate.OtherPath, other)
	case "method":
		put(attrs, "method", upperMethod(value))
	case "ip":
		if addr, ok := parseAddr(value); ok {
			value = r.proxies.text(addr)
		}
		put(attrs, "ip", value)
	case "api_key":
		put(attrs, "api_key", HashKey(value))
	default:
		put(attrs, name, value)
	}
}
