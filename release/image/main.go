// Command image makes an OCI image layout of root file systems that are there as tar files, one for each platform, without a
// container engine: image LAYOUT REFERENCE PROGRAM linux/ARCHITECTURE=FILE...
//
// Promises: the same files give the same digests; the image runs PROGRAM as the user 65532; containerd, podman and skopeo find
// it by REFERENCE, such as storebench/operator:0.1.0.
package main

import (
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const usage = "image LAYOUT REFERENCE PROGRAM linux/ARCHITECTURE=FILE..."

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v; usage: %s\n", err, usage)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 4 {
		return fmt.Errorf("%d arguments are too few", len(arguments))
	}
	index, err := indexOf(arguments[2], arguments[3:])
	if err != nil {
		return err
	}
	return write(arguments[0], arguments[1], index)
}

// indexOf makes an image for each platform, and the list of them.
func indexOf(program string, platforms []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		name, file, found := strings.Cut(platform, "=")
		architecture, isLinux := strings.CutPrefix(name, "linux/")
		if !found || !isLinux || architecture == "" {
			return nil, fmt.Errorf("%q is not linux/ARCHITECTURE=FILE", platform)
		}
		image, err := imageOf(program, architecture, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, nil
}

func imageOf(program, architecture, file string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: architecture,
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{program},
			Env:        []string{"PATH=/usr/local/bin"},
			User:       "65532",
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

// write makes the layout. containerd looks for the whole reference, as it writes them itself; others for the tag.
func write(path, reference string, index v1.ImageIndex) error {
	_, tag, found := strings.Cut(reference, ":")
	if !found {
		return fmt.Errorf("%q has no tag", reference)
	}
	at, err := layout.Write(path, empty.Index)
	if err != nil {
		return err
	}
	return at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          "docker.io/" + reference,
		"org.opencontainers.image.ref.name": tag,
	}))
}
