#!/usr/bin/env bash
# Writes every generated file: deepcopy, clientset, listers, informers,
# applyconfigurations and the CRD. `make lint` runs it and fails when a file changes.
set -euo pipefail
cd "$(dirname "$0")/.."

module=github.com/canarycontroller/canary-controller
apis=$module/controller/apis
api=$apis/canarycontroller/v1alpha1
generated=$module/controller/generated
header=tools/boilerplate.go.txt
bin=${TOOLS_BIN:-bin/tools}
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
for tool in $(cd tools && go list tool); do
  case $tool in *-gen) (cd tools && go build -o "$bin/" "$tool") ;; esac
done

"$bin/deepcopy-gen" --go-header-file "$header" --output-file zz_generated.deepcopy.go \
  "./controller/apis/canarycontroller/v1alpha1"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$bin/applyconfiguration-gen" --go-header-file "$header" \
  --output-dir "$out/applyconfiguration" --output-pkg "$generated/applyconfiguration" "$api"
"$bin/client-gen" --go-header-file "$header" --clientset-name versioned --input-base "$apis" \
  --input canarycontroller/v1alpha1 --apply-configuration-package "$generated/applyconfiguration" \
  --output-dir "$out/clientset" --output-pkg "$generated/clientset"
"$bin/lister-gen" --go-header-file "$header" \
  --output-dir "$out/listers" --output-pkg "$generated/listers" "$api"
"$bin/informer-gen" --go-header-file "$header" --versioned-clientset-package "$generated/clientset/versioned" \
  --listers-package "$generated/listers" --output-dir "$out/informers" --output-pkg "$generated/informers" "$api"
rm -rf controller/generated.new
cp -r "$out" controller/generated.new
cp controller/generated/doc.go controller/generated/staticcheck.conf controller/generated.new/
rm -rf controller/generated
mv controller/generated.new controller/generated
chmod 755 controller/generated

mkdir -p deploy/crd
"$bin/controller-gen" crd:generateEmbeddedObjectMeta=false,maxDescLen=400 \
  paths=./controller/apis/... output:crd:dir=deploy/crd
