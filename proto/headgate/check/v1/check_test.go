package checkv1_test

import (
	"testing"

	"github.com/headgate/headgate/internal/prototest"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

func TestGenerated(t *testing.T) {
	t.Parallel()
	prototest.Current(t, checkv1.File_headgate_check_v1_check_proto, &checkv1.CheckService_ServiceDesc)
}
