package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// Reads JSON, a document a line, and writes the same in protobuf as a kube-apiserver encodes it,
// each with its length before it: objects, or events of a watch.
func convert(what string) {
	known := scheme.Codecs.SupportedMediaTypes()
	info, _ := runtime.SerializerInfoForMediaType(known, runtime.ContentTypeProtobuf)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	stream := info.StreamSerializer
	wrapper := scheme.Codecs.EncoderForVersion(stream.Serializer, corev1.SchemeGroupVersion)
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	frames := streaming.NewEncoder(stream.Framer.NewFrameWriter(out), wrapper)
	events := restwatch.NewEncoder(frames, encoder)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		must(err)
		if what == "events" {
			var event struct {
				Type   string
				Object json.RawMessage
			}
			must(json.Unmarshal(line, &event))
			kind, object := watch.EventType(event.Type), decoded(event.Object)
			must(events.Encode(&watch.Event{Type: kind, Object: object}))
			continue
		}
		bytes, err := runtime.Encode(encoder, decoded(line))
		must(err)
		must(binary.Write(out, binary.BigEndian, uint32(len(bytes))))
		_, err = out.Write(bytes)
		must(err)
	}
	must(out.Flush())
}

func decoded(line []byte) runtime.Object {
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), line)
	must(err)
	return object
}
