package regiongrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

// maxLendTime is the maximum time of a loan. Callers have shorter deadlines.
const maxLendTime = 2 * time.Second

// Lender lends units, as a region.Store does.
type Lender interface {
	Lend(ctx context.Context, r region.LoanRequest) region.Loan
}

// Home decides charges on subjects whose home this region is, as a region.HomeStore does.
type Home interface {
	Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error
}

// service implements the protocol between regions.
type service struct {
	regionv1.UnimplementedRegionServiceServer
	network *Network
	lender  Lender
	home    Home
	decoder decoder
}

// Register registers the service on a server that was created with ServerOptions. lender lends this region's units, and home decides charges.
func (n *Network) Register(server grpc.ServiceRegistrar, lender Lender, home Home) {
	regionv1.RegisterRegionServiceServer(server, &service{network: n, lender: lender, home: home})
}

// Lend implements the method of the service.
func (s *service) Lend(ctx context.Context, m *regionv1.LendRequest) (*regionv1.LendResponse, error) {
	if err := s.network.authorize(ctx, m.GetFrom()); err != nil {
		return nil, err
	}
	r, ok := s.decoder.request(m)
	if !ok {
		return loanMessage(region.Loan{Rejection: region.Unlendable}), nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxLendTime)
	defer cancel()
	return loanMessage(s.lender.Lend(ctx, r)), nil
}

// Hello implements the method of the service.
func (s *service) Hello(ctx context.Context, m *regionv1.HelloRequest) (*regionv1.HelloResponse, error) {
	if err := s.network.authorize(ctx, m.GetFrom()); err != nil {
		return nil, err
	}
	o := &s.network.options
	response := &regionv1.HelloResponse{Region: o.Own, Epoch: o.Epoch, Subjects: o.Subjects, Version: o.Version}
	if now, ok := s.network.clock.now(); ok {
		response.StoreTimeUs = now.UnixMicro()
	}
	return response, nil
}

// authorize returns an error unless the caller is a server of the member that it claims to be: its certificate is valid for the host of
// the member's address.
func (n *Network) authorize(ctx context.Context, from string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.PermissionDenied, "no connection")
	}
	c, ok := p.AuthInfo.(*caller)
	if !ok {
		return status.Error(codes.PermissionDenied, "no TLS")
	}
	deny := func(why string) error {
		n.reject(ctx, p.Addr, c, quote(from), "claims", quote(from), "host", n.hosts[from], "error", why)
		return status.Error(codes.PermissionDenied, why)
	}
	_, authorities := n.certificates()
	host, member := n.hosts[from]
	switch {
	case !member:
		return deny("region " + quote(from) + " is not a member: add it to regions.members, or correct regions.name of the caller")
	case from == n.options.Own:
		return deny("region " + quote(from) + " is the name of this region: correct regions.name of the caller")
	}
	if err := c.verify(authorities); err != nil {
		return deny("certificate: " + err.Error())
	}
	if err := c.certificates[0].VerifyHostname(host); err != nil {
		return deny("region " + quote(from) + ": certificate: " + err.Error())
	}
	return nil
}
