package explain

import "github.com/headgate/headgate/internal/server/wording"

// Regions is the usage of a limit that regions share.
type Regions struct {
	// Limit is how many units all regions have together.
	Limit int64 `json:"limit"`
	// Used is how many units are used in all regions that responded: a lower bound unless Complete is set.
	Used     int64         `json:"used"`
	Complete bool          `json:"complete"`
	Members  []RegionUsage `json:"members"`
}

// RegionUsage is the usage of one region's share. Null values are unknown.
type RegionUsage struct {
	Name   string `json:"name"`
	Own    bool   `json:"own"`
	Weight int64  `json:"weight"`
	Share  int64  `json:"share"`
	// Used is how many units of the share are used, with those that were lent. Borrowed units do not count.
	Used      *int64 `json:"used"`
	Remaining *int64 `json:"remaining"`
	// Lent is how many units are lent to other regions; of a bucket only those of the last second.
	Lent *int64 `json:"lent"`
	// Problem is why the usage is unknown.
	Problem string `json:"problem,omitempty"`
}

// Add adds the usage of a region.
func (r *Regions) Add(u RegionUsage) {
	if u.Used == nil {
		r.Complete = false
	} else {
		r.Used += *u.Used
	}
	r.Members = append(r.Members, u)
}

// own returns the region of this server. It is the zero value if r is nil.
func (r *Regions) own() (own RegionUsage) {
	if r == nil {
		return own
	}
	for i := range r.Members {
		if r.Members[i].Own {
			own = r.Members[i]
		}
	}
	return own
}

// drained reports whether the region of this server has no share of any limit, because its weight is 0.
func (r *Regions) drained() bool {
	own := r.own()
	return own.Name != "" && own.Weight == 0
}

// Total returns the usage of the whole limit: "160 of 300 in all regions".
func (r *Regions) Total() string {
	text := wording.Number(r.Used) + " of " + wording.Number(r.Limit) + " in all regions"
	if !r.Complete {
		return "at least " + text
	}
	return text
}

// RegionRows returns the rows of a table of regions, without a heading.
func (r *Regions) RegionRows(title string) (rows [][]string) {
	for i := range r.Members {
		m := &r.Members[i]
		name := m.Name
		if m.Own {
			name += " (this region)"
		}
		row := []string{title, name, wording.Number(m.Share)}
		if m.Problem != "" || m.Used == nil || m.Remaining == nil || m.Lent == nil {
			row = append(row, "unknown", "unknown", "unknown", m.Problem)
		} else {
			row = append(row, wording.Number(*m.Used), wording.Number(*m.Lent), wording.Number(*m.Remaining), "")
		}
		rows = append(rows, row)
	}
	return rows
}

// RegionHeading returns the heading of the rows of RegionRows.
func RegionHeading() []string {
	return []string{"RULE", "REGION", "SHARE", "USED", "LENT", "REMAINING", "NOTES"}
}

// RegionsTitle is the title of a table of regions.
const RegionsTitle = "Shared by regions; units that a region has lent count as used there"
