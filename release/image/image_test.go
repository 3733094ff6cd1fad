package main

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// rootFileSystem is a tar with one program in it.
func rootFileSystem(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(file)
	header := &tar.Header{Name: "usr/local/bin/operator", Mode: 0o755, Size: int64(len(content))}
	if err := archive.WriteHeader(header); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// made is the index that a layout leads to, with what it says of it.
func made(t *testing.T, arguments ...string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "layout")
	if err := run(append([]string{folder}, arguments...)); err != nil {
		t.Fatal(err)
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout leads to %d images", len(manifest.Manifests))
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, manifest.Manifests[0]
}

func TestAnImageHasEveryPlatformAndIsWhole(t *testing.T) {
	files := map[string]string{"amd64": rootFileSystem(t, "one"), "arm64": rootFileSystem(t, "another")}
	index, descriptor := made(t, "storebench/operator:0.1.0", "operator",
		"linux/amd64="+files["amd64"], "linux/arm64="+files["arm64"])
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	if name := descriptor.Annotations["io.containerd.image.name"]; name != "docker.io/storebench/operator:0.1.0" {
		t.Errorf("containerd would call it %q", name)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != len(files) {
		t.Fatalf("it has %d platforms", len(manifest.Manifests))
	}
	for _, platform := range manifest.Manifests {
		image, err := index.Image(platform.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if _, known := files[config.Architecture]; !known || config.Architecture != platform.Platform.Architecture {
			t.Errorf("%q is listed as %v", config.Architecture, platform.Platform)
		}
		if config.Config.User != "65532" || config.Config.Entrypoint[0] != "operator" {
			t.Errorf("it runs %v as %q", config.Config.Entrypoint, config.Config.User)
		}
	}
}

func TestTheSameFilesGiveTheSameDigest(t *testing.T) {
	platform := "linux/amd64=" + rootFileSystem(t, "one")
	_, first := made(t, "storebench/operator:0.1.0", "operator", platform)
	_, second := made(t, "storebench/operator:0.1.0", "operator", platform)
	if first.Digest != second.Digest {
		t.Errorf("%v, and then %v", first.Digest, second.Digest)
	}
	_, other := made(t, "storebench/operator:0.1.0", "operator", "linux/amd64="+rootFileSystem(t, "two"))
	if first.Digest == other.Digest {
		t.Error("another program has the same digest")
	}
}

func TestWhatIsNoPlatformIsRefused(t *testing.T) {
	for _, platform := range []string{"amd64=root.tar", "linux/amd64", "linux/=root.tar", "linux/amd64=missing.tar"} {
		if err := run([]string{t.TempDir(), "storebench/operator:0.1.0", "operator", platform}); err == nil {
			t.Errorf("%q is accepted", platform)
		}
	}
}
