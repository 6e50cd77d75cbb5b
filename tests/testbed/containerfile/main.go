// Command containerfile checks a Containerfile with BuildKit's lint rules, like `docker build --check` but without a
// daemon. It reads no image and runs nothing. It exits with 1 if it prints problems, and with 2 if it cannot check.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerui"
	digest "github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// anyImage resolves every base image as existing and empty.
type anyImage struct{}

func (anyImage) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","rootfs":{"type":"layers"}}`, runtime.GOARCH)
	return ref, digest.FromBytes(config), config, nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: containerfile FILE")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	source := llb.NewSourceMap(nil, os.Args[1], "dockerfile", text)
	source.Definition = &llb.Definition{}
	platform := ocispecs.Platform{OS: "linux", Architecture: runtime.GOARCH}
	results, err := dockerfile2llb.DockerfileLint(context.Background(), text, dockerfile2llb.ConvertOpt{
		Config:         dockerui.Config{LinterConfig: &linter.Config{ExperimentalAll: true}},
		SourceMap:      source,
		TargetPlatform: &platform,
		MetaResolver:   anyImage{},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if results.Error != nil {
		fmt.Println(results.Error.Message)
	}
	for _, it := range results.Warnings {
		line := int32(0)
		if ranges := it.Location.GetRanges(); len(ranges) > 0 {
			line = ranges[0].Start.Line
		}
		fmt.Printf("%s:%d: %s: %s\n", os.Args[1], line, it.RuleName, it.Detail)
	}
	if results.Error != nil || len(results.Warnings) > 0 {
		os.Exit(1)
	}
}
