// `make sanitize`: kernels/cpu.cpp under AddressSanitizer and UBSan. Buffers of the caller have exactly their sizes, and
// each call has a thread, and so memory, of its own. A wrong size stops the program; beside that, each result has to be
// the same to the bit with other threads and without the other sequences, also where one of these holds NaN.
//
//     sanitize [SHAPES] [SEED]
//
// -DEMULATED: the code for AMX with its instructions as loops, on any processor; a sanitizer does not see what a tile reads.

#include <cstdio>
#include <cstring>
#include <immintrin.h>
#ifdef EMULATED
#include <cstdint>
#define __AVX512F__ 1
#define __AVX512BF16__ 1
#define __AMX_BF16__ 1
thread_local uint16_t tiles[8][16][32];  // the sums are floats in the same bytes
static void tile_load(int tile, const void* p, int64_t stride) {
  for (int i = 0; i < 16; i++) memcpy(tiles[tile][i], (const char*)p + i * stride, 64);
}
static void tile_store(int tile, void* p, int64_t stride) {
  for (int i = 0; i < 16; i++) memcpy((char*)p + i * stride, tiles[tile][i], 64);
}
// Of these arrays every index is known: checks would take most of the time.
#define UNCHECKED __attribute__((no_sanitize("address", "undefined"), optimize("O3")))
UNCHECKED static void tile_product(int sums, int a, int b) {
  float left[16][32], right[32][16], total[16][16];
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 32; k++) {
      uint32_t x = (uint32_t)tiles[a][i][k] << 16, y = (uint32_t)tiles[b][i][k] << 16;
      memcpy(&left[i][k], &x, 4);
      memcpy(&right[2 * i + k % 2][k / 2], &y, 4);
    }
  memcpy(total, tiles[sums], sizeof total);
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 32; k++)
      for (int j = 0; j < 16; j++) total[i][j] += left[i][k] * right[k][j];
  memcpy(tiles[sums], total, sizeof total);
}
typedef uint16_t halves __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(64)));
template <class X> UNCHECKED floats emulated_dot(floats sums, X x, X y) {
  typedef uint32_t words __attribute__((vector_size(64)));
  const words a = (words)x, b = (words)y;
  return sums + (floats)(a << 16) * (floats)(b << 16) + (floats)(a & 0xffff0000) * (floats)(b & 0xffff0000);
}
static __m512i emulated_load(const void* p, uint32_t mask = ~0u) {
  halves x = {};
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1) {
      uint16_t number;
      memcpy(&number, (const uint16_t*)p + i, 2);
      x[i] = number;
    }
  return (__m512i)x;
}
static __m256i emulated_narrow(floats x) {  // as `store` of cpu.cpp, which then does not use its own
  uint16_t numbers[16];
  for (int i = 0; i < 16; i++) {
    uint32_t u;
    memcpy(&u, &x[i], 4);
    numbers[i] = (x[i] == x[i] ? u + 0x7fff + ((u >> 16) & 1) : u | 0x400000) >> 16;
  }
  __m256i y;
  memcpy(&y, numbers, sizeof y);
  return y;
}
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_loadconfig
#undef _tile_release
#define _tile_loadd tile_load
#define _tile_stored tile_store
#define _tile_zero(tile) memset(tiles[tile], 0, sizeof tiles[tile])
#define _tile_dpbf16ps tile_product
#define _tile_loadconfig(config) (void)(config)
#define _tile_release() (void)0
#define _mm512_setzero_ps() floats{}
#define _mm512_dpbf16_ps(sums, x, y) emulated_dot((floats)(sums), x, y)
#define _mm512_cvtneps_pbh(x) (__m256bh)emulated_narrow((floats)(x))
#define _mm512_set1_epi32(x) (__m512i)((int32_t __attribute__((vector_size(64)))){} + (x))
#define _mm512_loadu_si512 emulated_load
#define _mm512_maskz_loadu_epi16(mask, p) emulated_load(p, mask)
#endif

#include "../modeling_star/kernels/cpu.cpp"

#include <random>
#include <thread>

typedef std::vector<int64_t> Lengths;

struct Result {
  std::vector<char> states, relay, pooled;
};

std::mt19937 generator;
int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }

struct Model {
  Shape s;
  bool low, half;
  std::vector<std::vector<char>> weights;  // those that there are
  std::vector<char> packed;

  int64_t size() const { return half ? 2 : 4; }
  std::vector<char> numbers(int64_t count, float middle = 0, float width = 0.5f) const {
    std::vector<char> bytes(count * size());
    std::uniform_real_distribution<float> draw(middle - width, middle + width);
    for (int64_t i = 0; i < count; i++)
      half ? narrow(draw(generator), (bf16*)bytes.data() + i) : narrow(draw(generator), (float*)bytes.data() + i);
    return bytes;
  }
  // Of each parameter that is given the exact size, in the order of `Slot`.
  std::vector<int64_t> sizes() const {
    const int64_t d = s.d, hc = s.h * s.c, weight = hc * d;
    std::vector<int64_t> of{weight, hc, weight, weight, hc, weight, d, s.h * s.roles(), d, d};
    if (s.kind == STAR) of.insert(of.end(), {weight, hc, weight, weight, hc, weight, d, d, d, d, d});
    else of.insert(of.end(), {s.inner * d, s.inner, s.inner * d, d, d, d});
    of.resize(SLOTS, 0);
    return of;
  }
  // `missing`: of 100 parameters how many a layer lacks.
  void make(int missing) {
    std::vector<const void*> given;
    const auto all = sizes();
    weights.reserve(s.layers * SLOTS);
    for (int64_t l = 0; l < s.layers; l++)
      for (int slot = 0; slot < SLOTS; slot++) {
        const bool is_norm = slot == NORM || (s.kind == STAR ? slot == RELAY_NORM || slot == START_NORM : slot == OUTER_NORM);
        const bool is_relay = s.kind == STAR && slot >= RELAY;
        if (!all[slot] || between(0, 99) < missing || (is_relay && !s.radial)) {
          given.push_back(nullptr);
          continue;
        }
        weights.push_back(numbers(all[slot], is_norm));
        weights.back().shrink_to_fit();
        given.push_back(weights.back().data());
      }
    packed.resize(modeling_star_packed_size(&s, low));
    memset(packed.data(), 0xff, packed.size());  // NaN, where it is not written
    modeling_star_pack(&s, low, half, given.data(), packed.data());
  }
};

// Offsets of sequences, one behind the other.
Lengths offsets_of(const Lengths& lengths) {
  Lengths offsets{0};
  for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
  offsets.shrink_to_fit();
  return offsets;
}

int failures = 0;
void check(bool holds, const char* what, const Model& model, const Lengths& lengths) {
  if (holds) return;
  failures++;
  const Shape& s = model.s;
  printf("%s: kind %ld d %ld h %ld c %ld layers %ld radius %ld inner %ld radial %ld pooling %ld low %d half %d, %zu "
         "sequences\n", what, s.kind, s.d, s.h, s.c, s.layers, s.radius, s.inner, s.radial, s.pooling, model.low,
         model.half, lengths.size());
}

Result encode_here(const Model& model, const Lengths& lengths, const std::vector<char>& embedded,
                   bool with_states, int threads) {
  const Lengths offsets = offsets_of(lengths);
  const int64_t row = model.s.d * model.size(), b = lengths.size();
  Result result;
  if (with_states) result.states.resize(offsets.back() * row, 1);
  if (model.s.pooling) result.pooled.resize(b * row, 1);
  if (model.s.pooling && model.s.radial && model.s.kind == STAR) result.relay.resize(b * row, 1);
  auto of = [](std::vector<char>& bytes) { return bytes.empty() ? nullptr : bytes.data(); };
  const int status = modeling_star_encode(&model.s, model.low, model.half, model.packed.data(), embedded.data(),
                                          offsets.data(), b, of(result.states), of(result.relay), of(result.pooled),
                                          threads);
  check(status == 0, "an error", model, lengths);
  return result;
}
template <class... A> Result encode_apart(const A&... arguments) {
  Result result;
  std::thread([&] { result = encode_here(arguments...); }).join();
  return result;
}

std::vector<char> part(const std::vector<char>& bytes, int64_t from, int64_t to) {
  return bytes.empty() ? bytes : std::vector<char>(bytes.begin() + from, bytes.begin() + to);
}
bool operator==(const Result& x, const Result& y) {
  return x.states == y.states && x.relay == y.relay && x.pooled == y.pooled;
}
Result of_sequence(const Result& all, const Model& model, const Lengths& offsets, int64_t n) {
  const int64_t row = model.s.d * model.size();
  return {part(all.states, offsets[n] * row, offsets[n + 1] * row), part(all.relay, n * row, (n + 1) * row),
          part(all.pooled, n * row, (n + 1) * row)};
}
bool has_nan(const Model& model, const std::vector<char>& bytes) {
  for (size_t i = 0; i < bytes.size() / model.size(); i++) {
    const float x = model.half ? widen(((const bf16*)bytes.data())[i]) : ((const float*)bytes.data())[i];
    if (x != x) return true;
  }
  return false;
}

void run(const Model& model, const Lengths& lengths, bool with_states) {
  const Lengths offsets = offsets_of(lengths);
  const int64_t row = model.s.d * model.size(), b = lengths.size(), d = model.s.d;
  const auto embedded = model.numbers(offsets.back() * d);
  const Result all = encode_apart(model, lengths, embedded, with_states, (int)between(1, 4));
  check(!has_nan(model, all.states) && !has_nan(model, all.pooled) && !has_nan(model, all.relay), "NaN", model, lengths);
  check(all == encode_apart(model, lengths, embedded, with_states, (int)between(1, 150)), "threads change results",
        model, lengths);
  auto alone = [&](int64_t n) {
    return encode_apart(model, Lengths{lengths[n]}, part(embedded, offsets[n] * row, offsets[n + 1] * row), with_states,
                        1);
  };
  for (int64_t n = 0; n < b && n < 8; n++)
    check(of_sequence(all, model, offsets, n) == alone(n), "batch mates change results", model, lengths);
  // NaN of any bits in one token.
  const int64_t poisoned = between(0, b - 1);
  if (!lengths[poisoned]) return;
  auto ill = embedded;
  const int64_t token = between(offsets[poisoned], offsets[poisoned + 1] - 1);
  memset(ill.data() + token * row, between(0, 1) ? 0xff : 0x7f, row);
  if (model.size() == 4)
    for (int64_t j = 0; j < d; j++) ill[token * row + j * 4 + 2] = (char)0xff;  // 0x7fff7f7f is one, 0x7f7f7f7f is not
  else
    for (int64_t j = 0; j < d; j++) ill[token * row + j * 2] = (char)0xff;
  Result with_ill, after;
  std::thread([&] {
    with_ill = encode_here(model, lengths, ill, with_states, 2);
    after = encode_here(model, lengths, embedded, with_states, 2);
  }).join();
  check(all == after, "NaN of an earlier call changes results", model, lengths);
  for (int64_t n = 0; n < b; n++)
    if (n != poisoned)
      check(of_sequence(with_ill, model, offsets, n) == of_sequence(all, model, offsets, n),
            "NaN of a batch mate changes results", model, lengths);
  const Result own = of_sequence(with_ill, model, offsets, poisoned);
  check(!with_states || has_nan(model, own.states), "NaN is lost in states", model, lengths);
  const bool first_sees_it = model.s.kind == BIG || model.s.radial || token == offsets[poisoned];
  check(!model.s.pooling || (model.s.pooling == FIRST && !first_sees_it) || has_nan(model, own.pooled),
        "NaN is lost in the vector", model, lengths);
}

int main(int argc, char** argv) {
#if defined(__AMX_BF16__) && !defined(EMULATED)
  if (!__builtin_cpu_supports("amx-bf16") || !modeling_star_ready()) return puts("compiled; this processor cannot run it"), 0;
#elif defined(__AVX512BF16__) && !defined(EMULATED)
  if (!__builtin_cpu_supports("avx512bf16")) return puts("compiled; this processor cannot run it"), 0;
#elif defined(__AVX512F__) && !defined(EMULATED)
  if (!__builtin_cpu_supports("avx512dq")) return puts("compiled; this processor cannot run it"), 0;
#endif
  const int shapes = argc > 1 ? atoi(argv[1]) : 300, seed = argc > 2 ? atoi(argv[2]) : 1;
  int64_t missing_total = 0;
  for (int i = 0; i < shapes; i++) {
    generator.seed(seed * 1000003 + i);
    const int64_t kind = between(0, 1), h = between(1, 9), c = between(1, between(0, 3) ? 20 : 16 * W);
    const int64_t d = between(0, 1) ? h * c : between(1, 150), radial = kind == STAR && between(0, 3);
    const int64_t radius = between(0, 2) ? between(0, 5) : kind == BIG && between(0, 3) ? between(17, 600) : 30;
    Model model{{kind, d, h, c, between(1, 3), radius, kind == BIG ? between(1, 200) : 0, between(0, 2), between(0, 1),
                 radial, radial && between(0, 1), between(0, 3), 1e-5}, between(0, 1) != 0, between(0, 1) != 0, {}, {}};
    const int missing = between(0, 1) ? 0 : 15;
    missing_total += missing > 0;
    model.make(missing);
    Lengths lengths;
    for (int64_t b = between(1, 12); b > 0; b--) lengths.push_back(between(0, 3) ? between(0, 40) : 0);
    if (i % 10 == 0) lengths[between(0, lengths.size() - 1)] = between(500, 1100);  // more than one chunk
    if (i % 4 == 0) lengths.insert(lengths.begin() + between(0, lengths.size()), i % 8 ? 300 : 1, 0);  // padding alone
    run(model, lengths, between(0, 1) || !model.s.pooling);
  }
  // A group of rows of padding alone before, behind and between rows that are a group by themselves; and nothing else.
  const int64_t whole = GROUP + 100;
  for (int64_t kind : {STAR, BIG})
    for (int64_t pooling : {MAXIMUM, MEAN, FIRST})
      for (int with_states : {0, 1}) {
        Model model{{kind, 4, 2, 2, 2, 1, 4, RELU, 1, kind == STAR, 0, pooling, 1e-5}, with_states != 0, false, {}, {}};
        model.make(0);
        for (int64_t padding : {0, 1, 300}) {
          Lengths lengths{whole};
          lengths.insert(lengths.begin(), padding, 0);
          lengths.resize(lengths.size() + padding, 0);
          lengths.push_back(whole);
          if (padding < 300) run(model, lengths, with_states);
          for (int64_t tokens : {0, 3}) {
            lengths.assign(std::max<int64_t>(padding, 1), 0);
            lengths.push_back(tokens);
            run(model, lengths, with_states);
            lengths.push_back(whole);
            if (padding == 300) run(model, lengths, with_states);
          }
        }
        // Many rows that end with their first token, of which some are empty.
        for (int64_t b : {40, 200, 5000}) {
          Lengths lengths(b, 0);
          lengths[between(0, b - 1)] = 3;
          run(model, lengths, with_states);
          if (b == 200) run(model, Lengths(b, 1), with_states);
        }
      }
  printf("%d shapes, %ld of them without some parameters, lanes %d, failures %d\n", shapes, (long)missing_total,
         modeling_star_lanes(), failures);
  return failures > 0;
}
