#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenfold::codecs {

/// The kinds of nodes of a pickle, protocols 0 to 5. Nothing is imported and nothing is called: a
/// call becomes a node with the callable and the arguments. The comments name the members of
/// PickleNode that hold the value.
enum class PickleKind : std::uint8_t {
  none,
  boolean,      ///< integer: 0 or 1
  integer,      ///< integer
  big_integer,  ///< text: decimal digits of an integer that int64 cannot hold
  number,       ///< number
  text,         ///< text: UTF-8; lone surrogates in three bytes, as Python writes them
  old_string,   ///< text: a Python 2 str, bytes of an unknown encoding
  bytes,        ///< text
  bytearray,    ///< text
  list,         ///< items
  tuple,        ///< items
  dict,         ///< items: key, value, key, value, ...; of duplicate keys, the last one counts
  set,          ///< items, possibly with duplicates
  frozenset,    ///< items, possibly with duplicates
  global,       ///< text: module, name: qualified name
  extension,    ///< integer: a code of Python's extension registry
  reduce,       ///< items: callable, arguments; the result of a call
  newobj,       ///< items: class, arguments[, keyword arguments]; cls.__new__(cls, *arguments)
  instance,     ///< items: class, arguments (a tuple); an instance, as Python 2 writes it
  persistent,   ///< items: the persistent id
};

/// An unpacked node. Members that its kind does not use are empty or 0.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  std::uint64_t offset = 0;  ///< of the opcode that created it
  std::int64_t integer = 0;
  double number = 0;
  std::string_view text;
  std::string_view name;
  std::span<const std::uint32_t> items;  ///< indices in PickleGraph::nodes
};

/// The nodes of a graph, packed into 24 bytes each, because page faults take most of the time of
/// reading a graph: the pickle of a checkpoint with 10,000 tensors has about 120,000 nodes.
class PickleNodes {
 public:
  std::size_t size() const noexcept { return packed_.size(); }
  void reserve(std::size_t count) { packed_.reserve(count); }

  PickleKind kind(std::uint32_t id) const noexcept { return packed_[id].kind; }
  std::span<const std::uint32_t> items(std::uint32_t id) const noexcept {
    const Packed& node = packed_[id];
    if (!has_items(node.kind)) return {};
    return {node.items, static_cast<std::size_t>(node.size)};
  }
  PickleNode operator[](std::uint32_t id) const noexcept {
    const Packed& packed = packed_[id];
    const auto size = static_cast<std::size_t>(packed.size);
    PickleNode node;
    node.kind = packed.kind;
    node.offset = packed.offset;
    if (has_items(packed.kind)) {
      node.items = {packed.items, size};
    } else if (has_text(packed.kind)) {
      node.text = {packed.text, size};
    } else if (packed.kind == PickleKind::global) {
      node.text = packed.global->module;
      node.name = packed.global->name;
    } else if (packed.kind == PickleKind::number) {
      node.number = packed.number;
    } else {
      node.integer = packed.integer;
    }
    return node;
  }

  class Iterator {
   public:
    Iterator(const PickleNodes& nodes, std::uint32_t id) : nodes_(&nodes), id_(id) {}
    using iterator_category = std::input_iterator_tag;
    using value_type = PickleNode;
    using difference_type = std::ptrdiff_t;
    using pointer = const PickleNode*;
    using reference = PickleNode;
    PickleNode operator*() const { return (*nodes_)[id_]; }
    Iterator& operator++() {
      ++id_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++id_;
      return before;
    }
    bool operator==(const Iterator& other) const = default;

   private:
    const PickleNodes* nodes_;
    std::uint32_t id_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, static_cast<std::uint32_t>(packed_.size())}; }

  // The data must fit `kind`. Strings and items are referenced, not copied.
  void add_integer(PickleKind kind, std::uint64_t offset, std::int64_t value) {
    add(kind, offset).integer = value;
  }
  void add_number(std::uint64_t offset, double value) {
    add(PickleKind::number, offset).number = value;
  }
  void add_text(PickleKind kind, std::uint64_t offset, std::string_view text) {
    Packed& node = add(kind, offset);
    node.text = text.data();
    node.size = text.size();
  }
  void add_items(PickleKind kind, std::uint64_t offset, std::span<const std::uint32_t> items) {
    add(kind, offset);
    set_items(static_cast<std::uint32_t>(packed_.size() - 1), items);
  }
  void add_global(std::uint64_t offset, std::string_view module, std::string_view name) {
    const Global& global = globals_.emplace_back(Global{module, name});
    add(PickleKind::global, offset).global = &global;
  }
  void set_items(std::uint32_t id, std::span<const std::uint32_t> items) {
    packed_[id].items = items.data();
    packed_[id].size = items.size();
  }

 private:
  struct Global {
    std::string_view module;
    std::string_view name;
  };
  struct Packed {
    std::uint64_t offset : 56;
    PickleKind kind : 8;
    union {
      std::int64_t integer;
      double number;
      const char* text;
      const std::uint32_t* items;
      const Global* global;
    };
    std::uint64_t size;  ///< of text or items
  };
  static_assert(sizeof(Packed) == 24);

  static bool has_text(PickleKind kind) noexcept {
    return kind == PickleKind::big_integer ||
           (kind >= PickleKind::text && kind <= PickleKind::bytearray);
  }
  static bool has_items(PickleKind kind) noexcept {
    return (kind >= PickleKind::list && kind <= PickleKind::frozenset) ||
           kind >= PickleKind::reduce;
  }

  Packed& add(PickleKind kind, std::uint64_t offset) {
    Packed& node = packed_.emplace_back();
    node.kind = kind;
    node.offset = offset & ((std::uint64_t{1} << 56U) - 1);
    return node;
  }

  std::vector<Packed> packed_;
  std::deque<Global> globals_;
};

/// Arena for lists of node indices that are freed together. A graph may have millions of lists, and
/// allocating each of them separately would take most of the time of reading the graph.
class IdArena {
 public:
  /// Copies a list that will not grow.
  std::span<const std::uint32_t> fixed(std::span<const std::uint32_t> ids) {
    std::uint32_t* const list = room(ids.size());
    std::copy(ids.begin(), ids.end(), list);
    return {list, ids.size()};
  }

  /// Returns `list` with `ids` appended. `list` must be empty or the latest result of appended()
  /// for this list. Space is reserved up to the next power of two.
  std::span<const std::uint32_t> appended(std::span<const std::uint32_t> list,
                                          std::span<const std::uint32_t> ids) {
    const std::size_t size = list.size() + ids.size();
    if (size == list.size()) return list;
    // The const_cast is safe: the memory is the arena's own, and is const only for readers.
    auto* data = const_cast<std::uint32_t*>(list.data());
    if (list.empty() || size > std::bit_ceil(list.size())) {
      data = room(std::bit_ceil(size));
      std::copy(list.begin(), list.end(), data);
    }
    std::copy(ids.begin(), ids.end(), data + list.size());
    return {data, size};
  }

 private:
  static constexpr std::size_t kBlock = 16384;

  std::uint32_t* room(std::size_t count) {
    if (count > left_) {
      left_ = std::max(count, kBlock);
      blocks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(left_));
      next_ = blocks_.back().get();
    }
    std::uint32_t* const list = next_;
    next_ += count;
    left_ -= count;
    return list;
  }

  std::vector<std::unique_ptr<std::uint32_t[]>> blocks_;
  std::uint32_t* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace tenfold::codecs
