#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "codecs/pickle/nodes.hpp"

namespace tenfold::codecs {

/// Maximum number of dimensions of a tensor: the limit of torch's reductions, such as sum().
inline constexpr std::size_t kMaxPickleDimensions = 64;

/// An operation that changes an object (a reduce, newobj or instance node) after its creation.
struct PickleChange {
  enum class Kind : std::uint8_t { append, set_item, add, state };
  Kind kind = Kind::state;
  std::uint32_t object = 0;  ///< the changed node
  std::uint32_t key = 0;     ///< set_item only
  std::uint32_t value = 0;
};

/// The nodes of a pickle. They form a graph, not a tree: a value that the pickle references twice
/// is one node, and lists, dicts and objects may contain themselves. Strings point into `owned` or
/// into the input; the input must outlive the graph. None, True, False and the integers 0 to 255
/// are one node each, however often they occur.
struct PickleGraph {
  PickleGraph() = default;
  PickleGraph(PickleGraph&&) = default;
  PickleGraph& operator=(PickleGraph&&) = default;
  PickleGraph(const PickleGraph&) = delete;  // text and items point into `owned` and `ids`
  PickleGraph& operator=(const PickleGraph&) = delete;
  ~PickleGraph() = default;

  PickleNodes nodes;
  std::vector<PickleChange> changes;  ///< in the order of the pickle
  std::uint32_t root = 0;
  /// Number of bytes up to and including STOP; another pickle may follow. If read_pickle_prefix()
  /// stopped at an error, the number of bytes read before the error.
  std::uint64_t size_bytes = 0;
  std::deque<std::string> owned;  ///< strings that had to be decoded
  IdArena ids;                    ///< the items of all nodes
  PickleNode at(std::uint32_t id) const { return nodes[id]; }

  /// Describes a node for messages: "an integer", "a call of \"os.system\"".
  std::string describe(std::uint32_t id) const;
  bool is_global(std::uint32_t id, std::string_view module, std::string_view name) const;

  /// Creates an error, which natural() and lengths() complete and throw if the node does not have
  /// the required type or value. For more lengths than kMaxPickleDimensions, lengths() changes the
  /// code of the error to unsupported.
  using Fault = std::function<Error()>;
  /// Returns the value of a non-negative integer of at most 63 bits.
  std::uint64_t natural(std::uint32_t id, const Fault& fault) const;
  /// Returns the non-negative integers of a tuple, list or torch.Size: at most
  /// kMaxPickleDimensions.
  std::vector<std::int64_t> lengths(std::uint32_t id, const Fault& fault) const;
};

struct PickleLimits {
  std::size_t max_nodes = 20'000'000;  ///< also limits the memo's entries and the changes
  /// Maximum nesting depth of nodes, and maximum number of marks on the stack. When the depth is
  /// measured, a node inside itself counts as empty. In a graph with cycles, some paths may still
  /// be longer than the limit, so recursive readers need a limit of their own.
  std::size_t max_depth = 1000;
  std::size_t max_integer_bytes = 1024;  ///< of a single integer
};

/// Reads the pickle at the start of `bytes`, without recursion. `where` names the pickle in
/// messages. Throws Error(corrupt) "<where>: <what>: expected ..., found ... at byte N" for an
/// invalid pickle. Throws Error(unsupported) for a protocol above 5, for out-of-band buffers, for
/// BUILD of a value that is not an object, and for a pickle that exceeds `limits`.
PickleGraph read_pickle(std::string_view bytes, const base::Where& where,
                        const PickleLimits& limits = {});

/// Like read_pickle(), but if that throws an Error, stores its message in `problem` and returns the
/// nodes created before the error, with a meaningless `root`. A program that unpickles `bytes` may
/// make the calls that these nodes describe before it detects the error.
PickleGraph read_pickle_prefix(std::string_view bytes, const base::Where& where,
                               std::string& problem, const PickleLimits& limits = {});

/// Returns a noun phrase for messages: "a list", "a call".
std::string_view describe(PickleKind kind) noexcept;

}  // namespace tenfold::codecs
