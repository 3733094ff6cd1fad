// Package suite pins etcd's own end-to-end tests, so that they can be built by their import path.
package suite

import (
	_ "go.etcd.io/etcd/tests/v3/framework/e2e"
	_ "go.etcd.io/etcd/tests/v3/framework/integration"
)
