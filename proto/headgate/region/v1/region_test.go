package regionv1_test

import (
	"testing"

	"github.com/headgate/headgate/internal/prototest"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

func TestGenerated(t *testing.T) {
	t.Parallel()
	prototest.Current(t, regionv1.File_headgate_region_v1_region_proto, &regionv1.RegionService_ServiceDesc)
	prototest.Current(t, regionv1.File_headgate_region_v1_weights_proto, &regionv1.WeightsService_ServiceDesc)
}
