package ruledoc

import "github.com/headgate/headgate"

// Apply puts the document's rules, overrides and exemptions in the place of the limiter's. If it fails, nothing has
// changed.
func (d *Document) Apply(limiter *headgate.Limiter) error {
	if err := limiter.Exceptions().Replace(d.Overrides, d.Exemptions); err != nil {
		return err
	}
	limiter.SetRules(d.Rules)
	return nil
}
