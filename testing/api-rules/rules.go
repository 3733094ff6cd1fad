package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metadata "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	strictyaml "sigs.k8s.io/yaml"
)

// Kind is one CustomResourceDefinition as an API server holds it: checked, its schema compiled.
type Kind struct {
	apiVersion string
	kind       string
	structural *schema.Structural
	openAPI    validation.SchemaValidator
	rules      *cel.Validator
}

// NewKind does what an API server does when a definition is created: defaults, then every check there is, among them
// that the schema is structural, that its defaults fit it, and that each rule compiles within its cost limit.
func NewKind(text []byte) (*Kind, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := strictyaml.UnmarshalStrict(text, &definition); err != nil {
		return nil, err
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&definition)
	var internal apiextensions.CustomResourceDefinition
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&definition, &internal, nil)
	if err != nil {
		return nil, err
	}
	if refusals := crdvalidation.ValidateCustomResourceDefinition(context.Background(), &internal); len(refusals) > 0 {
		return nil, refusals.ToAggregate()
	}
	if len(internal.Spec.Versions) != 1 {
		return nil, fmt.Errorf("%s has %d versions: teach this program to choose", definition.Name, len(internal.Spec.Versions))
	}
	// The conversion lifts the schema of a sole version to the definition itself.
	validated := internal.Spec.Validation
	if validated == nil {
		validated = internal.Spec.Versions[0].Schema
	}
	structural, err := schema.NewStructural(validated.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	openAPI, _, err := validation.NewSchemaValidator(validated.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	return &Kind{
		apiVersion: definition.Spec.Group + "/" + definition.Spec.Versions[0].Name,
		kind:       definition.Spec.Names.Kind,
		structural: structural,
		openAPI:    openAPI,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// Create says what an API server would say to `kubectl create --validate=strict`: nil, or why it refuses.
// The object is changed as the API server would change it.
func (k *Kind) Create(object map[string]any) error {
	if err := k.admit(object); err != nil {
		return err
	}
	refusals := metadata.ValidateObjectMetaAccessor(
		&unstructured.Unstructured{Object: object}, true, metadata.NameIsDNSSubdomain, field.NewPath("metadata"))
	refusals = append(refusals, validation.ValidateCustomResource(nil, object, k.openAPI)...)
	return k.finish(refusals, object, nil)
}

// Update says what an API server would say to `kubectl replace --validate=strict` of an object that it holds.
func (k *Kind) Update(object, old map[string]any) error {
	if err := k.admit(object); err != nil {
		return err
	}
	if err := k.admit(old); err != nil {
		return fmt.Errorf("the old object: %w", err)
	}
	return k.finish(validation.ValidateCustomResourceUpdate(nil, object, old, k.openAPI), object, old)
}

// What happens to an object between the wire and validation, in the API server's order: strict pruning, nulls, defaults,
// and that status is not the user's to write.
func (k *Kind) admit(object map[string]any) error {
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return err
	}
	options := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	unknown = append(unknown, pruning.PruneWithOptions(object, k.structural, true, options)...)
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return fmt.Errorf("unknown field %q", unknown)
	}
	k.withDefaults(object)
	delete(object, "status")
	if found {
		if meta.Namespace == "" {
			meta.Namespace = "default"
		}
		return objectmeta.SetObjectMeta(object, meta)
	}
	return nil
}

func (k *Kind) withDefaults(object map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, k.structural)
	defaulting.Default(object, k.structural)
}

func (k *Kind) finish(refusals field.ErrorList, object, old map[string]any) error {
	refusals = append(refusals, objectmeta.Validate(nil, object, k.structural, false)...)
	refusals = append(refusals, listtype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	// As in the API server, rules are not run on an object whose shape is wrong.
	if k.rules != nil && len(refusals) == 0 {
		// A nil map in an interface is not a nil interface, and the rules' library looks for the latter.
		var before any
		if old != nil {
			before = old
		}
		found, _ := k.rules.Validate(context.Background(), nil, k.structural, object, before, celconfig.RuntimeCELCostBudget)
		refusals = append(refusals, found...)
	}
	if len(refusals) == 0 {
		return nil
	}
	return refusals.ToAggregate()
}

// Rules are all kinds of an API server.
type Rules []*Kind

// CreateFile says what an API server would say to each object of a file; nil if it would accept them all.
func (r Rules) CreateFile(text []byte) error {
	objects, err := Objects(text)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return errors.New("no objects passed to create")
	}
	for _, object := range objects {
		kind, err := r.kindOf(object)
		if err == nil {
			err = kind.Create(object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r Rules) kindOf(object map[string]any) (*Kind, error) {
	for _, kind := range r {
		if object["apiVersion"] == kind.apiVersion && object["kind"] == kind.kind {
			return kind, nil
		}
	}
	return nil, fmt.Errorf("no matches for kind %q in version %q", object["kind"], object["apiVersion"])
}

// Objects decodes the documents of a file strictly: a duplicate key is an error, as it is to the API server.
func Objects(text []byte) ([]map[string]any, error) {
	reader := yaml.NewYAMLReader(newReader(text))
	var objects []map[string]any
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		asJSON, err := strictyaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(asJSON, []byte("null")) {
			continue
		}
		var object map[string]any
		// Kubernetes' own decoder, which tells integers from floats.
		if err := json.Unmarshal(asJSON, &object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

// OneLine folds an error into a line that is short enough to read.
func OneLine(err error) string {
	line := strings.Join(strings.Fields(err.Error()), " ")
	if runes := []rune(line); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return line
}
