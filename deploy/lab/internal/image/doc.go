// Package image is the lab's table of images: what runs when a container names
// an image. It does no network access and imports a YAML parser only.
package image
