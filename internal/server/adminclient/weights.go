package adminclient

import (
	"context"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// Weights returns the newest weights of the regions.
func (c *Client) Weights(ctx context.Context) (adminapi.RegionWeights, error) {
	return c.weights(ctx, http.MethodGet, nil)
}

// ChangeWeights changes the weights of regions.
func (c *Client) ChangeWeights(ctx context.Context, change *adminapi.WeightsChange) (adminapi.RegionWeights, error) {
	return c.weights(ctx, http.MethodPost, change)
}

func (c *Client) weights(ctx context.Context, method string, body any) (adminapi.RegionWeights, error) {
	w, err := get[adminapi.RegionWeights](ctx, c, method, adminapi.WeightsPath, body)
	if HasStatus(err, http.StatusNotFound) || HasStatus(err, http.StatusMethodNotAllowed) {
		return w, fmt.Errorf("%s: the server is older than this headgate and cannot change weights: upgrade the server", c.Server)
	}
	if err == nil && w.At.IsZero() {
		err = c.notAdminAPI()
	}
	return w, err
}
