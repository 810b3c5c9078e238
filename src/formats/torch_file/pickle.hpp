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

/// A pickle that torch.save wrote, while it is made into a tree: what its nodes mean, and how
/// errors name the place.
class Pickle {
 public:
  Pickle(const codecs::PickleGraph& graph, base::Where where);

  codecs::PickleNode at(std::uint32_t id) const { return graph_.at(id); }
  const codecs::PickleGraph& graph() const noexcept { return graph_; }

  /// What was done to the object after it was made.
  std::span<const codecs::PickleChange> changes(std::uint32_t id) const;

  /// What the pickle would have called: a function or class by name, and its arguments.
  struct Call {
    std::string_view module;
    std::string_view name;
    std::span<const std::uint32_t> arguments;
    bool is(std::string_view wanted_module, std::string_view wanted_name) const {
      return module == wanted_module && name == wanted_name;
    }
  };
  /// Nothing for another node, and for other ways of making objects.
  std::optional<Call> call(std::uint32_t id) const;

  /// The bytes of `bytes`, of `bytes()` or of `_codecs.encode(text, "latin1")`; nothing for another
  /// node.
  std::optional<std::string> bytes(std::uint32_t id) const;
  /// The bytes of text that was to be encoded as Latin-1.
  std::optional<std::string> latin1(std::uint32_t id, std::uint32_t encoding) const;
  /// Text, or a Python 2 string of ASCII; nothing for another node.
  std::optional<std::string_view> text(std::uint32_t id) const;
  bool is_global(std::uint32_t id, std::string_view module, std::string_view name) const;
  /// Integers from 0: a tuple, a list or a torch.Size. `subject` starts the message.
  Shape lengths(std::uint32_t id, std::string_view subject) const;
  std::uint64_t natural(std::uint32_t id, std::string_view subject) const;

  /// "an integer", "a call of \"os.system\"": for messages.
  std::string describe(std::uint32_t id) const;

  // Errors of the place where the reader stands: `<where>: key "a.b"`.
  Error corrupt() const;
  Error unsupported() const;
  /// For what is not on the list of what is read.
  [[noreturn]] void refuse_global(std::string_view module, std::string_view name) const;
  /// Throws unless there are `least` to `most` of them.
  void require_arguments(const Call& call, std::size_t least, std::size_t most) const;

  KeyPath keys;  ///< where in the tree the reader stands
  std::string subject() const;
  const base::Where& where() const noexcept { return where_; }
  base::Where place() const { return where_.at(subject()); }

 private:
  const codecs::PickleGraph& graph_;
  base::Where where_;
  std::vector<codecs::PickleChange> changes_;  ///< by object, else in order
};

}  // namespace tenfold::detail::formats::torch_file
