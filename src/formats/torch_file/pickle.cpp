#include "formats/torch_file/pickle.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold::detail::formats::torch_file {

using codecs::PickleChange;
using codecs::PickleKind;
using codecs::PickleNode;

namespace {

/// Converts UTF-8 to Latin-1, one byte for each character. Returns nullopt if a character is above
/// U+00FF.
std::optional<std::string> latin1_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
      continue;
    }
    if ((byte != 0xC2 && byte != 0xC3) || i + 1 == text.size()) return std::nullopt;
    const auto next = static_cast<unsigned char>(text[++i]);
    bytes += static_cast<char>((byte & 3U) << 6U | (next & 0x3FU));
  }
  return bytes;
}

}  // namespace

Pickle::Pickle(const codecs::PickleGraph& graph, base::Where where)
    : graph_(graph),
      where_(std::move(where)),
      changes_(graph.changes),
      budget_(kMaxRepeats + 4 * graph.nodes.size() + graph.size_bytes) {
  std::ranges::stable_sort(changes_, {}, &PickleChange::object);
}

void Pickle::spend(std::size_t nodes) const {
  is_spent_ = nodes > budget_;
  if (!is_spent_) {
    budget_ -= nodes;
    return;
  }
  throw unsupported()
      .problem("the pickle repeats shared objects too often")
      .expected("a tree of at most ", kMaxRepeats,
                " objects, plus 4 for each object and 1 for each byte of the pickle")
      .found("more");
}

std::span<const PickleChange> Pickle::changes(std::uint32_t id) const {
  return std::ranges::equal_range(changes_, id, {}, &PickleChange::object);
}

std::optional<Pickle::Call> Pickle::call(std::uint32_t id) const {
  const PickleNode node = at(id);
  if (node.kind != PickleKind::reduce) return std::nullopt;
  const PickleNode callable = at(node.items[0]);
  if (callable.kind != PickleKind::global) return std::nullopt;
  return Call{callable.text, callable.name, at(node.items[1]).items};
}

std::optional<std::string> Pickle::bytes(std::uint32_t id) const {
  const PickleNode node = at(id);
  if (node.kind == PickleKind::bytes || node.kind == PickleKind::bytearray ||
      node.kind == PickleKind::old_string) {
    spend_bytes(node.text.size());
    return std::string(node.text);
  }
  if (node.kind != PickleKind::reduce) return std::nullopt;
  const PickleNode arguments = at(node.items[1]);
  const bool is_empty = is_global(node.items[0], "__builtin__", "bytes") ||
                        is_global(node.items[0], "builtins", "bytes");
  if (is_empty && arguments.kind == PickleKind::tuple && arguments.items.empty()) {
    return std::string();
  }
  if (!is_global(node.items[0], "_codecs", "encode")) return std::nullopt;
  if (arguments.kind != PickleKind::tuple || arguments.items.size() != 2) return std::nullopt;
  return latin1(arguments.items[0], arguments.items[1]);
}

std::optional<std::string> Pickle::latin1(std::uint32_t id, std::uint32_t encoding) const {
  const auto name = text(encoding);
  if ((name != "latin1" && name != "latin-1") || !text(id)) return std::nullopt;
  spend_bytes(text(id)->size());
  return latin1_bytes(*text(id));
}

std::optional<std::string_view> Pickle::text(std::uint32_t id) const {
  const PickleNode node = at(id);
  if (node.kind == PickleKind::text) return node.text;
  const bool is_ascii = std::ranges::all_of(
      node.text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
  if (node.kind == PickleKind::old_string && is_ascii) return node.text;
  return std::nullopt;
}

std::uint64_t Pickle::natural(std::uint32_t id, std::string_view subject) const {
  return graph_.natural(id, [&] { return corrupt().part(subject); });
}

Shape Pickle::lengths(std::uint32_t id, std::string_view subject) const {
  return graph_.lengths(id, [&] { return corrupt().part(subject); });
}

std::string Pickle::subject() const {
  return keys.empty() ? "root" : "key " + base::quote(dotted(keys));
}

Error Pickle::corrupt() const { return base::corrupt(place()); }

Error Pickle::unsupported() const { return base::unsupported(place()); }

void Pickle::refuse_global(std::string_view module, std::string_view name) const {
  throw unsupported()
      .problem("it is not a tensor, JSON value or container of them")
      .expected("a supported class")
      .found(base::quote(std::string(module) + "." + std::string(name)))
      .remedy("no module was imported");
}

void Pickle::require_arguments(const Call& call, std::size_t least, std::size_t most) const {
  const std::size_t count = call.arguments.size();
  if (count >= least && count <= most) return;
  throw corrupt()
      .part(call.name)
      .expected(least, (most == least ? "" : " to " + std::to_string(most)), " arguments")
      .found(count);
}

}  // namespace tenfold::detail::formats::torch_file
