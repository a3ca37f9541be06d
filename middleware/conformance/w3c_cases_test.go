package conformance

import (
	"fmt"
	"strings"
)

const (
	w3cTrace  = "12345678901234567890123456789012"
	w3cParent = "1234567890123456"
	w3cIDs    = w3cTrace + "-" + w3cParent
)

// tp is a request with one traceparent that is taken up, and state lines.
func tp(lines ...string) []string {
	send := []string{"traceparent: 00-" + w3cIDs + "-00"}
	for _, l := range lines {
		send = append(send, "tracestate: "+l)
	}
	return send
}

// refused are requests with one traceparent each, none of which may be taken
// up.
func refused(values ...string) []step {
	var steps []step
	for _, v := range values {
		steps = append(steps, step{send: []string{"traceparent: " + v}, not: []string{w3cTrace, strings.Repeat("0", 32)}})
	}
	return steps
}

// taken are requests with one line each, all of which must be taken up.
func taken(lines ...string) []step {
	var steps []step
	for _, l := range lines {
		steps = append(steps, step{send: []string{l}, trace: w3cTrace})
	}
	return steps
}

// bars are the members barFrom=From to barTo=To on one line.
func bars(from, to int) string {
	var m []string
	for i := from; i <= to; i++ {
		m = append(m, fmt.Sprintf("bar%02d=%02d", i, i))
	}
	return strings.Join(m, ",")
}

// stateCharacters is every character a tracestate value may have.
func stateCharacters() string {
	var b strings.Builder
	for c := byte(0x20); c <= 0x7e; c++ {
		if c != ',' && c != '=' {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// w3cCases are named as in the W3C's suite, without "test_".
var w3cCases = map[string][]step{
	"both_traceparent_and_tracestate_missing":    {{}},
	"traceparent_included_tracestate_missing":    taken("traceparent: 00-" + w3cIDs + "-01"),
	"traceparent_duplicated":                     {{send: []string{"traceparent: 00-12345678901234567890123456789011-" + w3cParent + "-01", "traceparent: 00-" + w3cIDs + "-01"}, not: []string{"12345678901234567890123456789011", w3cTrace}}},
	"traceparent_header_name":                    {{send: []string{"trace-parent: 00-" + w3cIDs + "-01"}, not: []string{w3cTrace}}, {send: []string{"trace.parent: 00-" + w3cIDs + "-01"}, not: []string{w3cTrace}}},
	"traceparent_header_name_valid_casing":       taken("TraceParent: 00-"+w3cIDs+"-01", "TrAcEpArEnT: 00-"+w3cIDs+"-01", "TRACEPARENT: 00-"+w3cIDs+"-01"),
	"traceparent_version_0x00":                   refused("00-"+w3cIDs+"-01.", "00-"+w3cIDs+"-01-what-the-future-will-be-like"),
	"traceparent_version_0xcc":                   append(taken("traceparent: cc-"+w3cIDs+"-01", "traceparent: cc-"+w3cIDs+"-01-what-the-future-will-be-like"), refused("cc-"+w3cIDs+"-01.what-the-future-will-be-like")...),
	"traceparent_version_0xff":                   refused("ff-" + w3cIDs + "-01"),
	"traceparent_version_illegal_characters":     refused(".0-"+w3cIDs+"-01", "0.-"+w3cIDs+"-01"),
	"traceparent_version_too_long":               refused("000-"+w3cIDs+"-01", "0000-"+w3cIDs+"-01"),
	"traceparent_version_too_short":              refused("0-" + w3cIDs + "-01"),
	"traceparent_trace_id_all_zero":              refused("00-" + strings.Repeat("0", 32) + "-" + w3cParent + "-01"),
	"traceparent_trace_id_illegal_characters":    refused("00-.2345678901234567890123456789012-"+w3cParent+"-01", "00-1234567890123456789012345678901.-"+w3cParent+"-01"),
	"traceparent_trace_id_too_long":              {{send: []string{"traceparent: 00-123456789012345678901234567890123-" + w3cParent + "-01"}, not: []string{w3cTrace, "23456789012345678901234567890123"}}},
	"traceparent_trace_id_too_short":             {{send: []string{"traceparent: 00-1234567890123456789012345678901-" + w3cParent + "-01"}, not: []string{"01234567890123456789012345678901"}}},
	"traceparent_parent_id_all_zero":             refused("00-" + w3cTrace + "-0000000000000000-01"),
	"traceparent_parent_id_illegal_characters":   refused("00-"+w3cTrace+"-.234567890123456-01", "00-"+w3cTrace+"-123456789012345.-01"),
	"traceparent_parent_id_too_long":             refused("00-" + w3cTrace + "-12345678901234567-01"),
	"traceparent_parent_id_too_short":            refused("00-" + w3cTrace + "-123456789012345-01"),
	"traceparent_trace_flags_illegal_characters": refused("00-"+w3cIDs+"-.0", "00-"+w3cIDs+"-0."),
	"traceparent_trace_flags_too_long":           refused("00-" + w3cIDs + "-001"),
	"traceparent_trace_flags_too_short":          refused("00-" + w3cIDs + "-1"),
	"traceparent_ows_handling": taken("traceparent:  00-"+w3cIDs+"-01", "traceparent: \t00-"+w3cIDs+"-01", "traceparent: 00-"+w3cIDs+"-01 ",
		"traceparent: 00-"+w3cIDs+"-01\t", "traceparent: \t 00-"+w3cIDs+"-01 \t"),
	// The suite compares the lengths of two tracestates; that both are gone is
	// what it says it expects.
	"tracestate_included_traceparent_missing":  {{send: []string{"tracestate: foo=1"}, gone: []string{"foo"}}, {send: []string{"tracestate: foo=1,bar=2"}, gone: []string{"foo", "bar"}}},
	"tracestate_included_traceparent_included": {{send: tp("foo=1,bar=2"), trace: w3cTrace, state: []string{"foo=1", "bar=2"}}},
	"tracestate_header_name":                   {{send: append(tp(), "trace-state: foo=1"), trace: w3cTrace, gone: []string{"foo"}}, {send: append(tp(), "trace.state: foo=1"), trace: w3cTrace, gone: []string{"foo"}}},
	"tracestate_header_name_valid_casing": {{send: append(tp(), "TraceState: foo=1"), state: []string{"foo=1"}}, {send: append(tp(), "TrAcEsTaTe: foo=1"), state: []string{"foo=1"}},
		{send: append(tp(), "TRACESTATE: foo=1"), state: []string{"foo=1"}}},
	"tracestate_empty_header": {{send: tp(""), trace: w3cTrace}, {send: tp("foo=1", ""), trace: w3cTrace, state: []string{"foo=1"}}, {send: tp("", "foo=1"), trace: w3cTrace, state: []string{"foo=1"}}},
	"tracestate_multiple_headers_different_keys": {{send: tp("foo=1,bar=2", "rojo=1,congo=2", "baz=3"), trace: w3cTrace,
		state: []string{"foo=1", "bar=2", "rojo=1", "congo=2", "baz=3"}}},
	"tracestate_duplicated_keys": {{send: tp("foo=1,foo=1"), trace: w3cTrace, state: []string{"foo=1"}}, {send: tp("foo=1,foo=2"), trace: w3cTrace, state: []string{"foo=1"}},
		{send: tp("foo=1", "foo=1"), trace: w3cTrace, state: []string{"foo=1"}}, {send: tp("foo=1", "foo=2"), trace: w3cTrace, state: []string{"foo=1"}}},
	"tracestate_all_allowed_characters": {
		{send: tp("abcdefghijklmnopqrstuvwxyz0123456789_-*/=" + stateCharacters()), state: []string{"abcdefghijklmnopqrstuvwxyz0123456789_-*/=" + stateCharacters()}},
		{send: tp("abcdefghijklmnopqrstuvwxyz0123456789_-*/@a-z0-9_-*/=" + stateCharacters()), state: []string{"abcdefghijklmnopqrstuvwxyz0123456789_-*/@a-z0-9_-*/=" + stateCharacters()}},
	},
	"tracestate_ows_handling": {
		{send: tp("foo=1 \t , \t bar=2, \t baz=3"), state: []string{"foo=1", "bar=2", "baz=3"}},
		{send: tp("foo=1\t \t,\t \tbar=2,\t \tbaz=3"), state: []string{"foo=1", "bar=2", "baz=3"}},
		{send: tp(" foo=1"), trace: w3cTrace, state: []string{"foo=1"}}, {send: tp("\tfoo=1"), trace: w3cTrace, state: []string{"foo=1"}},
		{send: tp("foo=1 "), trace: w3cTrace, state: []string{"foo=1"}}, {send: tp("foo=1\t"), trace: w3cTrace, state: []string{"foo=1"}},
		{send: tp("\t foo=1 \t"), trace: w3cTrace, state: []string{"foo=1"}},
	},
	"tracestate_key_illegal_characters": {{send: tp("foo =1"), gone: []string{"foo", "foo "}}, {send: tp("FOO=1"), gone: []string{"FOO"}}, {send: tp("foo.bar=1"), gone: []string{"foo.bar"}}},
	"tracestate_key_illegal_vendor_format": {{send: tp("foo@=1,bar=2"), state: []string{"foo@=1", "bar=2"}}, {send: tp("@foo=1,bar=2"), gone: []string{"bar"}},
		{send: tp("foo@@bar=1,bar=2"), state: []string{"foo@@bar=1", "bar=2"}}, {send: tp("foo@bar@baz=1,bar=2"), state: []string{"foo@bar@baz=1", "bar=2"}}},
	"tracestate_member_count_limit": {
		{send: tp(bars(1, 10), bars(11, 20), bars(21, 30), bars(31, 32)), state: []string{"bar01=01"}, members: 32},
		{send: tp(bars(1, 10), bars(11, 20), bars(21, 30), bars(31, 33)), gone: []string{"bar01"}},
	},
	"tracestate_key_length_limit": {
		{send: tp("foo=1", strings.Repeat("z", 256)+"=1"), state: []string{"foo=1", strings.Repeat("z", 256) + "=1"}},
		{send: tp("foo=1", strings.Repeat("z", 257)+"=1"), gone: []string{"foo"}},
		{send: tp("foo=1", strings.Repeat("t", 241)+"@"+strings.Repeat("v", 14)+"=1"), state: []string{"foo=1", strings.Repeat("t", 241) + "@" + strings.Repeat("v", 14) + "=1"}},
		{send: tp("foo=1", strings.Repeat("t", 242)+"@v=1"), state: []string{"foo=1", strings.Repeat("t", 242) + "@v=1"}},
		{send: tp("foo=1", "t@"+strings.Repeat("v", 15)+"=1"), state: []string{"foo=1", "t@" + strings.Repeat("v", 15) + "=1"}},
	},
	"tracestate_value_illegal_characters":      {{send: tp("foo=bar=baz"), gone: []string{"foo"}}, {send: tp("foo=,bar=3"), gone: []string{"foo", "bar"}}},
	"multiple_requests_with_valid_traceparent": {{send: []string{"traceparent: 00-" + w3cIDs + "-01"}, calls: 3, trace: w3cTrace}},
	"multiple_requests_without_traceparent":    {{calls: 3}},
	"multiple_requests_with_illegal_traceparent": {{send: []string{"traceparent: 00-" + strings.Repeat("0", 32) + "-" + w3cParent + "-01"}, calls: 3,
		not: []string{strings.Repeat("0", 32)}}},
	"propagates_random_flag": {{send: []string{"traceparent: 00-" + w3cIDs + "-02"}, trace: w3cTrace, random: true}},
}
