package regiongrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

// maxTables is the maximum size of the tables of a region.
const maxTables = 256 << 10

// Tables returns the tables of this region's weights, or an empty text if they have the digest, as region.Weights does.
type Tables interface{ Tables(digest string) string }

// RegisterWeights registers the service by which other regions read the weights of this one.
func (n *Network) RegisterWeights(server grpc.ServiceRegistrar, tables Tables) {
	regionv1.RegisterWeightsServiceServer(server, &weightsService{network: n, tables: tables})
}

// weightsService implements the service.
type weightsService struct {
	regionv1.UnimplementedWeightsServiceServer
	network *Network
	tables  Tables
}

// PullWeights implements the method of the service.
func (s *weightsService) PullWeights(ctx context.Context, m *regionv1.PullWeightsRequest) (*regionv1.PullWeightsResponse, error) {
	if err := s.network.authorize(ctx, m.GetFrom()); err != nil {
		return nil, err
	}
	if m.GetEpoch() != s.network.options.Epoch {
		return nil, status.Error(codes.FailedPrecondition, "other members, weights or secret: write the same regions.members and secret_file in the configs of all regions")
	}
	return &regionv1.PullWeightsResponse{Tables: s.tables.Tables(m.GetDigest())}, nil
}

// Pullers returns what reads the weights of the other regions, by name.
func (n *Network) Pullers() map[string]region.Puller {
	all := map[string]region.Puller{}
	for _, p := range n.links {
		all[p.member.Name] = puller{p, regionv1.NewWeightsServiceClient(p.conn)}
	}
	return all
}

// puller reads the weights of another region.
type puller struct {
	link   *link
	client regionv1.WeightsServiceClient
}

// PullWeights implements [region.Puller].
func (p puller) PullWeights(ctx context.Context, digest string) (string, error) {
	o := &p.link.network.options
	request := &regionv1.PullWeightsRequest{From: o.Own, Epoch: o.Epoch, Digest: digest}
	m, err := p.client.PullWeights(ctx, request, grpc.MaxCallRecvMsgSize(maxTables))
	if status.Code(err) == codes.Unimplemented {
		return "", errors.New("the version of its servers cannot change weights: upgrade them")
	}
	if err != nil {
		return "", errors.New(reason(err))
	}
	return m.GetTables(), nil
}
