#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "codecs/pickle/pickle.hpp"

namespace tenfold::detail::formats::torch_file {

/// A pickle that is being converted to a tree. Interprets the nodes of the pickle, and creates
/// errors that name the current key.
class Pickle {
 public:
  Pickle(const codecs::PickleGraph& graph, base::Where where);

  codecs::PickleNode at(std::uint32_t id) const { return graph_.at(id); }

  /// Limits the size of the tree: spend() accepts this number of nodes, plus four for each node of
  /// the pickle and one for each of its bytes. Without a limit, a small pickle could become a huge
  /// tree: a pickle can refer to one list a thousand times, and this list can refer to another list
  /// a thousand times, but a tree has a copy for each reference. A long list of few different
  /// values is not refused, because each reference takes at least one byte.
  static constexpr std::size_t kMaxRepeats = 1'000'000;
  /// Counts nodes of the pickle that are converted or read. A shared node counts each time. Throws
  /// Error(unsupported) if there are too many.
  void spend(std::size_t nodes) const;
  /// Counts bytes that are copied to the tree: 256 bytes count as one node.
  void spend_bytes(std::size_t size_bytes) const { spend(size_bytes / 256); }
  /// True if the last spend() threw. Its error concerns the whole pickle, not one entry.
  bool is_spent() const noexcept { return is_spent_; }
  const codecs::PickleGraph& graph() const noexcept { return graph_; }

  /// Returns the changes that the pickle makes to the object `id` after its creation, in the
  /// order in which it makes them.
  std::span<const codecs::PickleChange> changes(std::uint32_t id) const;

  /// A call in the pickle: the name of the function or class, and its arguments.
  struct Call {
    std::string_view module;
    std::string_view name;
    std::span<const std::uint32_t> arguments;
    bool is(std::string_view wanted_module, std::string_view wanted_name) const {
      return module == wanted_module && name == wanted_name;
    }
  };
  /// Returns the call of a REDUCE node whose callable is a global; nullopt for any other node.
  std::optional<Call> call(std::uint32_t id) const;

  /// Returns the bytes of a `bytes` or `bytearray` node, of a string of Python 2, or of a call
  /// `bytes()` or `_codecs.encode(text, "latin1")`. Returns nullopt for any other node.
  std::optional<std::string> bytes(std::uint32_t id) const;
  /// Encodes the string `id` as Latin-1. Returns nullopt if `id` is not a string, if the node
  /// `encoding` is neither "latin1" nor "latin-1", or if a character has no code in Latin-1.
  std::optional<std::string> latin1(std::uint32_t id, std::uint32_t encoding) const;
  /// Returns the text of a string, or of a string of Python 2 that is ASCII; nullopt for any other
  /// node.
  std::optional<std::string_view> text(std::uint32_t id) const;
  bool is_global(std::uint32_t id, std::string_view module, std::string_view name) const {
    return graph_.is_global(id, module, name);
  }
  // Like PickleGraph::lengths() and natural(). Throw Error(corrupt), naming `subject`, if the node
  // has another type or value. lengths() throws Error(unsupported) for more than 64 lengths.
  Shape lengths(std::uint32_t id, std::string_view subject) const;
  std::uint64_t natural(std::uint32_t id, std::string_view subject) const;

  std::string describe(std::uint32_t id) const { return graph_.describe(id); }

  // Errors that name the current key: `<where>: key "a.b"`.
  Error corrupt() const;
  Error unsupported() const;
  /// Throws Error(unsupported) for a class or function that tenfold does not support.
  [[noreturn]] void refuse_global(std::string_view module, std::string_view name) const;
  /// Throws Error(corrupt) unless there are `least` to `most` arguments.
  void require_arguments(const Call& call, std::size_t least, std::size_t most) const;

  KeyPath keys;  ///< path of the current node in the tree; the caller updates it
  /// `key "a.b"` for the current node, or "root".
  std::string subject() const;
  const base::Where& where() const noexcept { return where_; }
  /// The file and the subject(), for messages.
  base::Where place() const { return where_.at(subject()); }

 private:
  const codecs::PickleGraph& graph_;
  base::Where where_;
  std::vector<codecs::PickleChange> changes_;  ///< sorted by object, stably
  mutable std::size_t budget_;                 ///< the number of nodes that spend() still accepts
  mutable bool is_spent_ = false;
};

}  // namespace tenfold::detail::formats::torch_file
