package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// As much of an AnalysisTemplate as ours has; anything else in it is an error.
type analysisTemplate struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       struct {
		Args []struct {
			Name string `json:"name"`
		} `json:"args"`
		Metrics []struct {
			Name     string `json:"name"`
			Provider struct {
				Job struct {
					Spec batchv1.JobSpec `json:"spec"`
				} `json:"job"`
			} `json:"provider"`
		} `json:"metrics"`
	} `json:"spec"`
}

// The Job of an AnalysisTemplate ends well for the run that passed and for no other.
func TestAnAnalysisSucceedsWhereTheRunPassed(t *testing.T) {
	text, err := os.ReadFile(manifests + "/argo-rollouts/analysis-template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(bytes.ReplaceAll(text, []byte("{{args.run}}"), []byte("demo")), []byte("\n---\n"))
	var template analysisTemplate
	if err := decode(documents[len(documents)-1], &template); err != nil {
		t.Fatal(err)
	}
	job := template.Spec.Metrics[0].Provider.Job.Spec
	if *job.BackoffLimit != 0 || job.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Error("a second attempt would find the run's name taken")
	}
	steps := slices.Concat(job.Template.Spec.InitContainers, job.Template.Spec.Containers)
	tried := 0
	for state, object := range states(t) {
		if !strings.HasPrefix(state, "run-") {
			continue
		}
		tried++
		ends := !slices.ContainsFunc(steps, func(step corev1.Container) bool {
			switch line := strings.Join(step.Args, " "); {
			case line == "create --filename=/benchmark/run.yaml":
				return false
			case strings.HasPrefix(line, "wait benchmarkrun/demo --for=condition=Complete --timeout="):
				return !holds(object, "Complete")
			case strings.HasPrefix(line, "wait benchmarkrun/demo --for=condition=Succeeded --timeout="):
				return !holds(object, "Succeeded")
			default:
				t.Fatalf("kubectl is asked for something else: %s", line)
				return true
			}
		})
		if ends != (state == "run-passed") {
			t.Errorf("%s: the Job succeeds: %v", state, ends)
		}
	}
	if tried < 14 {
		t.Errorf("only %d states were tried", tried)
	}
}
