// Sends requests to a Beacon API as validator clients in Go do, with Attestant's
// go-eth2-client: go-client URL <JOBS. Each job {"call", "id", "json"} results in a line:
// the fork of the response and its value as SSZ; or the error.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	eth2client "github.com/attestantio/go-eth2-client"
	"github.com/attestantio/go-eth2-client/api"
	"github.com/attestantio/go-eth2-client/api/v1/deneb"
	"github.com/attestantio/go-eth2-client/http"
	"github.com/attestantio/go-eth2-client/spec"
	"github.com/rs/zerolog"
)

type job struct {
	Call string          `json:"call"`
	ID   string          `json:"id"`
	JSON json.RawMessage `json:"json"`
}

type line struct {
	Version string `json:"version,omitempty"`
	SSZ     string `json:"ssz,omitempty"`
	Status  int    `json:"status,omitempty"`
	Error   string `json:"error,omitempty"`
}

type value interface {
	MarshalSSZ() ([]byte, error)
}

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := http.New(ctx,
		http.WithAddress(os.Args[1]),
		http.WithTimeout(60*time.Second),
		http.WithLogLevel(zerolog.Disabled),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var jobs []job
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	output := json.NewEncoder(os.Stdout)
	for _, job := range jobs {
		result := line{}
		version, values, err := fetch(ctx, client, job)
		for _, value := range values {
			var ssz []byte
			if err == nil {
				ssz, err = value.MarshalSSZ()
			}
			result.SSZ += hex.EncodeToString(ssz)
		}
		var failed *api.Error
		if errors.As(err, &failed) {
			result.Status = failed.StatusCode
		}
		if err != nil {
			result = line{Status: result.Status, Error: err.Error()}
		} else if len(values) > 0 {
			result.Version = version
		}
		if err := output.Encode(result); err != nil {
			os.Exit(1)
		}
	}
}

// fetch returns the fork of a response, and its value; for a list the concatenation of its
// elements.
func fetch(ctx context.Context, client eth2client.Service, job job) (string, []value, error) {
	switch job.Call {
	case "block":
		got, err := client.(eth2client.SignedBeaconBlockProvider).SignedBeaconBlock(ctx,
			&api.SignedBeaconBlockOpts{Block: job.ID})
		if err != nil {
			return "", nil, err
		}
		return named(got.Data.Version), []value{got.Data.Deneb}, nil
	case "state":
		got, err := client.(eth2client.BeaconStateProvider).BeaconState(ctx,
			&api.BeaconStateOpts{State: job.ID})
		if err != nil {
			return "", nil, err
		}
		return named(got.Data.Version), []value{got.Data.Deneb}, nil
	case "blobs":
		got, err := client.(eth2client.BlobSidecarsProvider).BlobSidecars(ctx,
			&api.BlobSidecarsOpts{Block: job.ID})
		if err != nil {
			return "", nil, err
		}
		var values []value
		for _, sidecar := range got.Data {
			values = append(values, sidecar)
		}
		return "", values, nil
	case "publish":
		proposal := &api.VersionedSignedProposal{
			Version: spec.DataVersionDeneb,
			Deneb:   &deneb.SignedBlockContents{},
		}
		if err := json.Unmarshal(job.JSON, proposal.Deneb); err != nil {
			return "", nil, err
		}
		return "", nil, client.(eth2client.ProposalSubmitter).SubmitProposal(ctx, proposal)
	}
	return "", nil, fmt.Errorf("no call %q", job.Call)
}

func named(version spec.DataVersion) string {
	return strings.ToLower(version.String())
}
