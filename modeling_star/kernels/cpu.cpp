// Whole layers of Star-Transformer and BiG-Transformer on packed tokens, for inference on a CPU. `cpu.py` compiles this
// file and calls it; `models/` has the same operations in PyTorch, and tests/reference.py has them as loops.
//
// Axes: b sequences  N tokens  d width  h heads  c width of a head  r candidates of a token
//
// One layer passes once over the tokens, in blocks that stay in the cache, spread over threads:
//
//     states -> queries -> attention over candidates -> W_O -> norm [-> feed-forward -> norm] -> states
//                                 ^                                                              |
//        keys and values of all tokens, from the pass before                 keys and values of the next layer
//
// Two forms of numbers: float, and bfloat16 in memory with float sums, which needs AVX512_BF16. Everything is written for
// vectors of W floats, which GCC and Clang compile for any processor; what these instructions and AMX need stands
// between #ifdef.
//
// Buffers of tokens have rows of a stride that ends in zeros, and some rows more than there are: a head may be read
// beyond its end, and products are computed for whole tiles.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <omp.h>
#include <vector>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
constexpr int PANEL = 32;  // columns of a packed weight that lie side by side
constexpr int TILE = 16;   // rows of an AMX tile
constexpr int BLOCK = 128;  // tokens of a block
constexpr int GROUP = 4096;  // tokens for each thread of whole sequences that go through all layers together
constexpr int CHUNK = 512;  // tokens of a sequence that one sum of the relay goes over
constexpr int QUERIES = 32;  // tokens whose queries are multiplied by the same keys
constexpr int KEYS = 256;  // keys of one softmax: those of more are joined
constexpr int CACHE_LINE = 64;
constexpr int64_t MOST_CANDIDATES = 64;  // of a token whose candidates are read one by one
constexpr int64_t MOST_RADIUS = 16;  // of such a token of BiG

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef uint16_t bf16;

int64_t up(int64_t x, int64_t m) { return (x + m - 1) / m * m; }

// ------ vectors

vf load(const float* p) {
  vf x;
  memcpy(&x, p, sizeof x);
  return x;
}
vf load(const bf16* p) {
  vh x;
  memcpy(&x, p, sizeof x);
  return (vf)(__builtin_convertvector(x, vu) << 16);
}
void store(float* p, vf x) { memcpy(p, &x, sizeof x); }
void store(bf16* p, vf x) {
#ifdef __AVX512BF16__
  __m256bh y = _mm512_cvtneps_pbh((__m512)x);
#else
  vu u = (vu)x;
  u = x == x ? u + 0x7fff + ((u >> 16) & 1) : u | 0x400000;  // to the nearest, ties to even; NaN stays NaN
  vh y = __builtin_convertvector(u >> 16, vh);
#endif
  memcpy(p, &y, sizeof y);
}
float widen(float x) { return x; }
float widen(bf16 x) {
  uint32_t u = (uint32_t)x << 16;
  float y;
  memcpy(&y, &u, 4);
  return y;
}
void narrow(float x, float* p) { *p = x; }
void narrow(float x, bf16* p) {
  uint32_t u;
  memcpy(&u, &x, 4);
  *p = (x == x ? u + 0x7fff + ((u >> 16) & 1) : u | 0x400000) >> 16;
}
vf splat(float x) { return x - vf{}; }
vf select(vi where, vf yes, vf no) { return (vf)(((vi)yes & where) | ((vi)no & ~where)); }
vf larger(vf x, vf y) { return select(x < y, y, x); }  // x where it is no number
// Keeps the first `count` numbers and makes the others 0, also where they are no numbers.
vf first(vf x, int count) {
  vi lane;
  for (int i = 0; i < W; i++) lane[i] = i;
  return (vf)((vi)x & (lane < count));
}
// Keeps the numbers from `start` to before `stop`.
vf between(vf x, int64_t start, int64_t stop) {
  vi lane;
  for (int i = 0; i < W; i++) lane[i] = i;
  const int from = std::clamp<int64_t>(start, 0, W), to = std::clamp<int64_t>(stop, 0, W);
  return (vf)((vi)x & (lane >= from) & (lane < to));
}
template <int n> float sum_of(const float* p) {
  if constexpr (n == 1) return *p;
  typedef float half __attribute__((vector_size(n == 1 ? 4 : 2 * n)));
  half low, high;
  memcpy(&low, p, sizeof low);
  memcpy(&high, p + n / 2, sizeof high);
  low += high;
  return sum_of<n == 1 ? 1 : n / 2>((const float*)&low);
}
float sum(vf x) { return sum_of<W>((const float*)&x); }
// The sums over lanes of `count` vectors; `sums` has room for a multiple of W.
void sum_lanes(const vf* x, int64_t count, float* sums) {
  typedef float v4 __attribute__((vector_size(16)));
  for (int64_t i = 0; i < count; i += 4) {
    v4 four[4];
    for (int64_t k = 0; k < 4; k++) {
      const float* lanes = (const float*)&x[std::min(i + k, count - 1)];
      four[k] = v4{};
      for (int j = 0; j < W; j += 4) {
        v4 part;
        memcpy(&part, lanes + j, sizeof part);
        four[k] += part;
      }
    }
    for (int64_t k = 0; k < 4; k++) sums[i + k] = (four[k][0] + four[k][2]) + (four[k][1] + four[k][3]);
  }
}
// e^x for x <= 0 within 2 units of the last place: 2^(n + f), |f| <= 1/2, by the series of 2^f.
vf exponential(vf x) {
  x = larger(x * splat(1.44269504f), splat(-126.0f));
  vf shifted = x + splat(12582912.0f);  // 1.5 * 2^23: the last bits are the nearest whole number
  vf f = x - (shifted - splat(12582912.0f));
  vf y = splat(1.54035304e-4f);
  y = y * f + splat(1.33335581e-3f);
  y = y * f + splat(9.61812911e-3f);
  y = y * f + splat(5.55041087e-2f);
  y = y * f + splat(2.40226507e-1f);
  y = y * f + splat(6.93147181e-1f);
  y = y * f + splat(1.0f);
  return y * (vf)(((vu)shifted << 23) + (127u << 23));  // a product: what is no number stays none
}
// erf by Abramowitz and Stegun, 7.1.26: within 1.5e-7.
vf gelu(vf x) {
  vf z = x * splat(0.70710678f), a = larger(z, -z);
  vf t = splat(1.0f) / (a * splat(0.3275911f) + splat(1.0f));
  vf p = splat(1.061405429f);
  p = p * t + splat(-1.453152027f);
  p = p * t + splat(1.421413741f);
  p = p * t + splat(-0.284496736f);
  p = p * t + splat(0.254829592f);
  vf e = splat(1.0f) - p * t * exponential(-a * a);
  return x * splat(0.5f) * (splat(1.0f) + select(z < splat(0.0f), -e, e));
}
// The same within 1e-5 up to |x| = 4.3 and 1e-5 |x| beyond, for bfloat16, in half the time: Phi(x) - 1/2 is x times a
// polynomial in x^2, fitted for the smallest maximal error. NaN stays NaN.
vf short_gelu(vf x) {
  const vf a = splat(4.3f);
  const vf z = select(x > a, a, select(x < -a, -a, x)), s = z * z * splat(0.108166577f) - splat(1.0f);
  vf p = splat(-0.00116894755f);
  p = p * s + splat(0.00322381174f);
  p = p * s + splat(-0.00464260811f);
  p = p * s + splat(0.00824332703f);
  p = p * s + splat(-0.0161358062f);
  p = p * s + splat(0.0265951306f);
  p = p * s + splat(-0.0393158793f);
  p = p * s + splat(0.0554865934f);
  p = p * s + splat(-0.0800646842f);
  p = p * s + splat(0.164055705f);
  return x * (z * p + splat(0.5f));
}
enum Activation { NONE = 0, RELU = 1, GELU = 2 };
vf activate(vf x, int activation, bool is_short = false) {
  if (activation == RELU) return larger(x, vf{});
  return activation == GELU ? is_short ? short_gelu(x) : gelu(x) : x;
}

// ------ memory that a thread keeps for its next call, as new pages cost more than what is written to them

struct Arena {
  static constexpr int64_t KEPT = 64 << 20;
  std::vector<std::pair<char*, int64_t>> pieces;
  size_t next = 0;
  template <class T> T* take(int64_t count) {
    int64_t bytes = std::max<int64_t>(count * sizeof(T), CACHE_LINE);
    if (next == pieces.size()) pieces.push_back({nullptr, 0});
    auto& [memory, size] = pieces[next++];
    if (size < bytes) {
      free(memory);
      memory = nullptr;
      size = 0;
      void* fresh = nullptr;
      if (posix_memalign(&fresh, CACHE_LINE, bytes)) throw std::bad_alloc();
      memset(fresh, 0, bytes);
      memory = (char*)fresh;
      size = bytes;
    }
    return (T*)memory;
  }
  void end() {
    next = 0;
    int64_t total = 0;
    for (auto& piece : pieces) total += piece.second;
    if (total > KEPT) clear();
  }
  void clear() {
    for (auto& piece : pieces) free(piece.first);
    pieces.clear();
  }
  ~Arena() { clear(); }
};

// ------ products with packed weights

// A weight `[N, K]` of nn.Linear in panels of 32 columns, zeros beyond N. float: `[panel][K][32]`. bfloat16: tiles of AMX
// `[panel][K / 32][2][16][32]`, pairs of inputs side by side, zeros beyond K.
template <class T> struct Matrix {
  T* data = nullptr;
  int64_t panels = 0, depth = 0;
  int64_t size() const { return panels * depth * PANEL; }
};

template <class Out> void finish(vf x, const float* bias, int activation, Out* out) {
  if (bias) x += load(bias);
  store(out, activate(x, activation, sizeof(Out) == 2));
}

// M rows of `a` times a panel; the sums stay in registers.
template <int M, class T, class Out>
void rows_times_panel(const T* a, int64_t lda, const T* b, int64_t depth, const float* bias, int activation, Out* out,
                      int64_t ldo) {
  constexpr int V = PANEL / W;
  vf sums[M][V] = {};
#ifdef __AVX512BF16__
  if constexpr (sizeof(T) == 2) {  // pairs are multiplied and added to a float by one instruction
    constexpr int64_t HALF = TILE * PANEL;
    for (int64_t k = 0; k < depth; k += PANEL, b += 2 * HALF)
      for (int64_t pair = 0; pair < TILE; pair++) {
        const __m512bh left = (__m512bh)_mm512_loadu_si512(b + pair * PANEL);
        const __m512bh right = (__m512bh)_mm512_loadu_si512(b + HALF + pair * PANEL);
        __builtin_prefetch(b + depth * PANEL + pair * PANEL);  // the next panel, which is beyond the second cache
        __builtin_prefetch(b + depth * PANEL + HALF + pair * PANEL);
#pragma GCC unroll 16
        for (int i = 0; i < M; i++) {
          int32_t two;
          memcpy(&two, a + i * lda + k + 2 * pair, 4);
          const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
          sums[i][0] = (vf)_mm512_dpbf16_ps((__m512)sums[i][0], left, x);
          sums[i][1] = (vf)_mm512_dpbf16_ps((__m512)sums[i][1], right, x);
        }
      }
  } else
#endif
    for (int64_t k = 0; k < depth; k++, b += PANEL) {
      vf column[V];
#pragma GCC unroll 8
      for (int j = 0; j < V; j++) column[j] = load(b + j * W);
      for (int j = 0; W == 16 && j < V; j++) __builtin_prefetch(b + depth * PANEL + j * W);
#pragma GCC unroll 16
      for (int i = 0; i < M; i++) {
        vf x = splat(a[i * lda + k]);
#pragma GCC unroll 8
        for (int j = 0; j < V; j++) sums[i][j] += x * column[j];
      }
    }
#pragma GCC unroll 16
  for (int i = 0; i < M; i++)
#pragma GCC unroll 8
    for (int j = 0; j < V; j++)
      finish(sums[i][j], bias ? bias + j * W : nullptr, activation, out + i * ldo + j * W);
}

// out = activation(a W^T + bias), `[rows, N]`; all columns of the panels are written.
template <class T, class Out>
void product(const T* a, int64_t lda, int64_t rows, const Matrix<T>& w, const float* bias, int activation, Out* out,
             int64_t ldo) {
  constexpr int MOST = W == 16 ? 12 : 3;
  for (int64_t p = 0; p < w.panels; p++, out += PANEL) {
    const T* b = w.data + p * w.depth * PANEL;
    const float* of_panel = bias ? bias + p * PANEL : nullptr;
    int64_t r = 0;
    auto next = [&](auto m) {
      for (; r + m() <= rows; r += m())
        rows_times_panel<m()>(a + r * lda, lda, b, w.depth, of_panel, activation, out + r * ldo, ldo);
    };
    next(std::integral_constant<int, MOST>());
    if (W == 16) next(std::integral_constant<int, 8>()), next(std::integral_constant<int, 4>());
    next(std::integral_constant<int, 1>());
  }
}

#ifdef __AMX_BF16__
// GCC 12 does not know that the instructions of tiles read memory: it may remove or delay what is written for them.
void memory_is_read(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Gives this thread the tiles; other libraries set them as they need them.
struct Tiles {
  Tiles() {
    struct alignas(CACHE_LINE) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = TILE;
    memory_is_read(&config);
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
};

// As above. Whole tiles: up to 31 rows after the last one are read and written.
template <class Out>
void product(const bf16* a, int64_t lda, int64_t rows, const Matrix<bf16>& w, const float* bias, int activation,
             Out* out, int64_t ldo) {
  constexpr int64_t HALF = TILE * PANEL;  // numbers of a tile
  alignas(CACHE_LINE) float sums[2 * TILE * PANEL];
  memory_is_read(a);
  for (int64_t p = 0; p < w.panels; p++, out += PANEL)
    for (int64_t r = 0; r < rows; r += 2 * TILE) {
      const bf16 *b = w.data + p * w.depth * PANEL, *upper = a + r * lda, *lower = upper + TILE * lda;
      const bool both = rows - r > TILE;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t k = 0; k < w.depth; k += PANEL, b += 2 * HALF) {
        // Of a short text the weights are read once, from beyond the second cache: two steps ahead.
        if (rows <= 2 * TILE)
          for (int64_t i = 0; i < 2 * HALF; i += CACHE_LINE / sizeof(bf16)) __builtin_prefetch(b + 4 * HALF + i);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + HALF, 64);
        _tile_loadd(4, upper + k, lda * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (both) {
          _tile_loadd(5, lower + k, lda * 2);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
      _tile_stored(0, sums, PANEL * 4);
      _tile_stored(1, sums + TILE, PANEL * 4);
      if (both) {
        _tile_stored(2, sums + TILE * PANEL, PANEL * 4);
        _tile_stored(3, sums + TILE * PANEL + TILE, PANEL * 4);
      }
      memory_is_read(sums);
      for (int64_t i = 0; i < (both ? 2 * TILE : TILE); i++)
        for (int j = 0; j < PANEL; j += W)
          finish(load(sums + i * PANEL + j), bias ? bias + p * PANEL + j : nullptr, activation,
                 out + (r + i) * ldo + j);
    }
}
#else
struct Tiles {
  Tiles() {}
};
#endif

// ------ shapes and packed weights

enum Kind { STAR = 0, BIG = 1 };
enum Pooling { NOTHING = 0, MAXIMUM = 1, MEAN = 2, FIRST = 3 };  // the vector of a sequence

struct Shape {
  int64_t kind, d, h, c, layers, radius, inner, activation, residual, radial, start_norm, pooling;
  double eps;
  // What is derived: vectors that hold a head, and columns of padded rows.
  int vectors() const {
    int count = 1;
    while (count * W < c) count *= 2;
    return count;
  }
  int64_t beyond() const { return std::max(up(c, PANEL), (int64_t)vectors() * W) - c; }
  int64_t dp() const { return up(d, PANEL); }
  int64_t hcp() const { return up(h * c + beyond(), PANEL); }
  int64_t kvp() const { return up(2 * h * c + beyond(), PANEL); }
  int64_t innerp() const { return up(inner, PANEL); }
  int64_t candidates() const { return 2 * radius + 2 + (kind == STAR && radial); }
  int64_t roles() const { return kind == STAR ? candidates() : 0; }  // that may have a bias
  // Whether many neighbours make it worth while to multiply all queries of a block by all its keys.
  bool is_dense() const { return kind == BIG && radius > MOST_RADIUS; }
  bool has_code() const {
    return layers > 0 && radius >= 0 && (is_dense() || candidates() <= MOST_CANDIDATES) && c <= 16 * W;
  }
};

template <class T> struct Relay {
  Matrix<T> query, output;
  std::vector<Matrix<T>> key, value;  // of each head; W_K transposed
  float *query_bias = nullptr, *output_bias = nullptr;
};
template <class T> struct Layer {
  Matrix<T> query, key_value, output, inner, outer;
  float *query_bias, *output_bias, *role_bias, *norm, *inner_bias, *outer_bias, *outer_norm, *relay_norm;
  float* start_norm;  // of the relay before the first layer
  Relay<T> relay;
};

// The pieces of one block of memory, in a fixed order; of no memory, only its size.
struct Pieces {
  char* base;
  int64_t size = 0;
  template <class T> T* take(int64_t count) {
    char* piece = base ? base + size : nullptr;
    size += up(count * sizeof(T), CACHE_LINE);
    return (T*)piece;
  }
  template <class T> Matrix<T> matrix(int64_t columns, int64_t inputs) {
    Matrix<T> m;
    m.panels = up(columns, PANEL) / PANEL;
    m.depth = sizeof(T) == 2 ? up(inputs, PANEL) : inputs;
    m.data = take<T>(m.size());
    return m;
  }
};

template <class T> std::vector<Layer<T>> lay_out(const Shape& s, Pieces& memory) {
  std::vector<Layer<T>> layers(s.layers);
  const int64_t hc = s.h * s.c, beyond = s.beyond();
  for (auto& layer : layers) {
    layer.query = memory.matrix<T>(hc + beyond, s.d);
    layer.query_bias = memory.take<float>(s.hcp());
    layer.key_value = memory.matrix<T>(2 * hc + beyond, s.d);
    layer.output = memory.matrix<T>(s.d, hc);
    layer.output_bias = memory.take<float>(s.dp());
    layer.role_bias = memory.take<float>(s.h * s.roles());
    layer.norm = memory.take<float>(2 * s.dp());
    if (s.kind == STAR) {
      layer.relay.query = memory.matrix<T>(hc + beyond, s.d);
      layer.relay.query_bias = memory.take<float>(s.hcp());
      for (int64_t i = 0; i < s.h; i++) {
        layer.relay.key.push_back(memory.matrix<T>(s.d, s.c));
        layer.relay.value.push_back(memory.matrix<T>(s.c, s.d));
      }
      layer.relay.output = memory.matrix<T>(s.d, hc);
      layer.relay.output_bias = memory.take<float>(s.dp());
      layer.relay_norm = memory.take<float>(2 * s.dp());
      layer.start_norm = memory.take<float>(2 * s.dp());
    } else {
      layer.inner = memory.matrix<T>(s.inner, s.d);
      layer.inner_bias = memory.take<float>(s.innerp());
      layer.outer = memory.matrix<T>(s.d, s.inner);
      layer.outer_bias = memory.take<float>(s.dp());
      layer.outer_norm = memory.take<float>(2 * s.dp());
    }
  }
  return layers;
}

// A parameter of the model, float or bfloat16; null where a layer has none.
struct Parameter {
  const void* data;
  bool half;
  float missing = 0;
  float operator[](int64_t i) const {
    return !data ? missing : half ? widen(((const bf16*)data)[i]) : ((const float*)data)[i];
  }
};

template <class T, class F> void fill(Matrix<T>& m, int64_t columns, int64_t inputs, F weight) {
  std::fill_n(m.data, m.size(), T{});
  for (int64_t n = 0; n < columns; n++)
    for (int64_t k = 0; k < inputs; k++) {
      int64_t panel = n / PANEL, column = n % PANEL;
      T* p = m.data + panel * m.depth * PANEL;
      if (sizeof(T) == 2)
        p += (((k / PANEL) * 2 + column / TILE) * TILE + k % PANEL / 2) * PANEL + column % TILE * 2 + k % 2;
      else
        p += k * PANEL + column;
      narrow(weight(n, k), p);
    }
}
template <class F> void fill(float* p, int64_t size, int64_t count, F value) {
  for (int64_t i = 0; i < size; i++) p[i] = i < count ? value(i) : 0;
}

// The order of a layer's parameters, any of which may be null: a norm then multiplies by 1, others are 0. A relay of
// Star has its own; that of BiG, its first token, those of the tokens.
enum Slot {
  QUERY, QUERY_BIAS, KEY, VALUE, VALUE_BIAS, OUTPUT, OUTPUT_BIAS, ROLE_BIAS, NORM, NORM_BIAS, RELAY,
  RELAY_NORM = RELAY + OUTPUT_BIAS + 1, RELAY_NORM_BIAS, START_NORM, START_NORM_BIAS,
  INNER = RELAY, INNER_BIAS, OUTER, OUTER_BIAS, OUTER_NORM, OUTER_NORM_BIAS, SLOTS = START_NORM_BIAS + 1
};

template <class T> void pack(const Shape& s, const void* const* given, bool half, char* memory) {
  Pieces pieces{memory};
  const int64_t d = s.d, hc = s.h * s.c, dp = s.dp();
  const float scale = 1 / std::sqrt((float)s.c);
  for (auto& layer : lay_out<T>(s, pieces)) {
    auto of = [&](int slot, float missing = 0) { return Parameter{given[slot], half, missing}; };
    auto vector = [&](float* p, int64_t size, int64_t count, Parameter from) {
      fill(p, size, count, [&](int64_t i) { return from[i]; });
    };
    auto norm = [&](float* p, int slot) {
      vector(p, dp, d, of(slot, 1));
      vector(p + dp, dp, d, of(slot + 1));
    };
    // The weights of a softmax have the sum 1, so that the bias of the values is a part of the output's.
    auto projections = [&](int from, Matrix<T>& query, float* query_bias, Matrix<T>& output, float* output_bias) {
      Parameter wq = of(from + QUERY), bq = of(from + QUERY_BIAS), wo = of(from + OUTPUT), bo = of(from + OUTPUT_BIAS);
      Parameter bv = of(from + VALUE_BIAS);
      fill(query, hc, d, [&](int64_t n, int64_t k) { return scale * wq[n * d + k]; });
      fill(query_bias, s.hcp(), hc, [&](int64_t i) { return scale * bq[i]; });
      fill(output, d, hc, [&](int64_t n, int64_t k) { return wo[n * hc + k]; });
      fill(output_bias, dp, d, [&](int64_t i) {
        double total = bo[i];
        for (int64_t k = 0; k < hc; k++) total += (double)wo[i * hc + k] * bv[k];
        return (float)total;
      });
    };
    projections(0, layer.query, layer.query_bias, layer.output, layer.output_bias);
    Parameter wk = of(KEY), wv = of(VALUE);
    fill(layer.key_value, 2 * hc, d, [&](int64_t n, int64_t k) { return n < hc ? wk[n * d + k] : wv[(n - hc) * d + k]; });
    vector(layer.role_bias, s.h * s.roles(), s.h * s.roles(), of(ROLE_BIAS));
    norm(layer.norm, NORM);
    if (s.kind == STAR) {
      Relay<T>& relay = layer.relay;
      projections(RELAY, relay.query, relay.query_bias, relay.output, relay.output_bias);
      Parameter key = of(RELAY + KEY), value = of(RELAY + VALUE);
      for (int64_t i = 0; i < s.h; i++) {
        fill(relay.key[i], d, s.c, [&](int64_t n, int64_t k) { return key[(i * s.c + k) * d + n]; });
        fill(relay.value[i], s.c, d, [&](int64_t n, int64_t k) { return value[(i * s.c + n) * d + k]; });
      }
      norm(layer.relay_norm, RELAY_NORM);
      norm(layer.start_norm, START_NORM);
    } else {
      Parameter inner = of(INNER), outer = of(OUTER);
      fill(layer.inner, s.inner, d, [&](int64_t n, int64_t k) { return inner[n * d + k]; });
      vector(layer.inner_bias, s.innerp(), s.inner, of(INNER_BIAS));
      fill(layer.outer, d, s.inner, [&](int64_t n, int64_t k) { return outer[n * s.inner + k]; });
      vector(layer.outer_bias, dp, d, of(OUTER_BIAS));
      norm(layer.outer_norm, OUTER_NORM);
    }
    given += SLOTS;
  }
}

// ------ what a token does

// LayerNorm of state + activation(update), `[d]`; zeros in the columns up to dp. `state` may be null, or `out`.
template <class T, class Out>
void norm(const float* update, const T* state, int activation, const float* weight, const Shape& s, Out* out) {
  const int64_t d = s.d, dp = s.dp();
  float x[dp];
  vf total = {};
  for (int64_t j = 0; j < dp; j += W) {
    vf y = activate(load(update + j), activation);
    if (state) y += load(state + j);
    y = j + W <= d ? y : first(y, d - j);
    store(x + j, y);
    total += y;
  }
  const vf mean = splat(sum(total) / d);
  vf squares = {};
  for (int64_t j = 0; j < d; j += W) {
    vf y = load(x + j) - mean;
    y = j + W <= d ? y : first(y, d - j);
    squares += y * y;
  }
  const vf factor = splat(1 / std::sqrt(sum(squares) / d + (float)s.eps));
  for (int64_t j = 0; j < dp; j += W) {
    vf y = (load(x + j) - mean) * factor * load(weight + j) + load(weight + dp + j);
    store(out + j, j + W <= d ? y : first(y, d - j));
  }
}

// A head of a query as V vectors, zeros beyond the head, and its products with a key, whose sum is the score.
template <int V, class T> struct Query {
  vf x[V];
  Query(const T* query, int64_t c) {
    for (int j = 0; j < V; j++) x[j] = first(load(query + j * W), c - j * W);
  }
  vf times(const T* key) const {
    vf products = x[0] * load(key);
    for (int j = 1; j < V; j++) products += x[j] * load(key + j * W);
    return products;
  }
};
#ifdef __AVX512BF16__
template <int V> struct Query<V, bf16> {
  static constexpr int PAIRS = (V + 1) / 2;
  __m512i x[PAIRS];
  Query(const bf16* query, int64_t c) {
    for (int j = 0; j < PAIRS; j++) {
      const int64_t count = std::clamp<int64_t>(c - j * 2 * W, 0, 2 * W);
      x[j] = _mm512_maskz_loadu_epi16((__mmask32)((1ull << count) - 1), query + j * 2 * W);
    }
  }
  vf times(const bf16* key) const {
    __m512 products = _mm512_setzero_ps();
    for (int j = 0; j < PAIRS; j++)
      products = _mm512_dpbf16_ps(products, (__m512bh)x[j], (__m512bh)_mm512_loadu_si512(key + j * 2 * W));
    return (vf)products;
  }
};
#endif

// The context of a token, `[h c]`, from the keys and values of its `count` candidates: scores, softmax and sum. Heads are
// computed in groups whose scores are one row of numbers. A head is V vectors of which the last go beyond it.
template <int V, class T>
void attend(const T* query, const T* const* keys, int64_t count, const float* role_bias, const Shape& s, T* context) {
  const int64_t c = s.c, hc = s.h * c, heads_at_once = MOST_CANDIDATES / count;
  for (int64_t from = 0; from < s.h; from += heads_at_once) {
    const int64_t heads = std::min(heads_at_once, s.h - from), n = heads * count;
    vf products[MOST_CANDIDATES];
    float scores[MOST_CANDIDATES + W];
    for (int64_t i = 0; i < heads; i++) {
      const int64_t column = (from + i) * c;
      const Query<V, T> q(query + column, c);
      for (int64_t r = 0; r < count; r++) products[i * count + r] = q.times(keys[r] + column);
    }
    sum_lanes(products, n, scores);
    for (int64_t i = 0; i < heads; i++) {
      float* row = scores + i * count;
      if (role_bias)
        for (int64_t r = 0; r < count; r++) row[r] += role_bias[(from + i) * count + r];
      float most = row[0];
      for (int64_t r = 1; r < count; r++) most = std::max(most, row[r]);
      for (int64_t r = 0; r < count; r++) row[r] -= most;
    }
    for (int64_t r = 0; r < n; r += W) store(scores + r, exponential(load(scores + r)));
    for (int64_t i = 0; i < heads; i++) {
      const int64_t column = (from + i) * c;
      float total = 0;
      vf sums[V] = {};
      for (int64_t r = 0; r < count; r++) {
        const float weight = scores[i * count + r];
        const T* value = keys[r] + hc + column;
        total += weight;
        for (int j = 0; j < V; j++) sums[j] += splat(weight) * load(value + j * W);
      }
      const vf factor = splat(1 / total);
      // What lies beyond the head is overwritten by the next one.
      for (int j = 0; j < V; j++) store(context + column + j * W, first(sums[j] * factor, c - j * W));
    }
  }
  std::fill(context + hc, context + s.hcp(), T{});
}

template <class T>
void attend(const T* query, const T* const* keys, int64_t count, const float* role_bias, const Shape& s, T* context) {
  switch (s.vectors()) {
    case 1: return attend<1>(query, keys, count, role_bias, s, context);
    case 2: return attend<2>(query, keys, count, role_bias, s, context);
    case 4: return attend<4>(query, keys, count, role_bias, s, context);
    case 8: return attend<8>(query, keys, count, role_bias, s, context);
    default: return attend<16>(query, keys, count, role_bias, s, context);
  }
}

// ------ keys and values of a sequence as packed matrices, for attention over many neighbours
//
//        keys 0 .. 31   32 .. 63   64 .. 95        A block of queries is multiplied by the panels that its window
// tokens    xxxxxxxx    xxxxxxxx    xx......        overlaps, key 0 being token 1: the first token is a candidate of
//  33..64   xxxxxxxx    xxxxxxxx    xxxx....        every query, and is where its softmax begins. Whole panels from
//           ...xxxxx    xxxxxxxx    xxxxxxxx        the start of a sequence: batch mates and blocks change no bit.

// `count` keys, rows of stride `ld`, as the columns of a panel, and values as its inputs; zeros beyond.
void pack_keys(const float* rows, int64_t ld, int64_t count, int64_t c, float* panel) {
  for (int64_t k = 0; k < c; k++)
    for (int64_t t = 0; t < PANEL; t++) panel[k * PANEL + t] = t < count ? rows[t * ld + k] : 0;
}
void pack_values(const float* rows, int64_t ld, int64_t count, int64_t c, float* panel) {
  for (int64_t t = 0; t < PANEL; t++)
    for (int64_t k = 0; k < PANEL; k++) panel[t * PANEL + k] = t < count && k < c ? rows[t * ld + k] : 0;
}
void pack_keys(const bf16* rows, int64_t ld, int64_t count, int64_t c, bf16* panel) {
  for (int64_t k = 0; k < up(c, PANEL); k += 2)
    for (int64_t t = 0; t < PANEL; t++) {
      uint32_t two = 0;
      if (t < count && k < c) memcpy(&two, rows + t * ld + k, 4);
      if (k + 1 == c) two &= 0xffff;
      memcpy(panel + (k / PANEL * 2 + t / TILE) * TILE * PANEL + k % PANEL * TILE + t % TILE * 2, &two, 4);
    }
}
void pack_values(const bf16* rows, int64_t ld, int64_t count, int64_t c, bf16* panel) {
  for (int64_t t = 0; t < PANEL; t += 2)
    for (int64_t k = 0; k < PANEL; k += W) {
      auto row = [&](int64_t i) { return (vu)(i < count ? first(load(rows + i * ld + k), c - k) : vf{}); };
      const vu two = row(t) >> 16 | row(t + 1);
      memcpy(panel + k / TILE * TILE * PANEL + t * TILE + k % TILE * 2, &two, sizeof two);
    }
}
template <class T> float dot(const T* x, const T* y, int64_t c) {
  vf products = {};
  for (int64_t j = 0; j < c; j += W) products += first(load(x + j) * load(y + j), std::min<int64_t>(c - j, W));
  return sum(products);
}
// The largest of `count` scores and `most`.
float largest(const float* scores, int64_t count, float most) {
  vf x = splat(most);
  int64_t t = 0;
  for (; t + W <= count; t += W) x = larger(x, load(scores + t));
  for (int i = 0; i < W; i++) most = std::max(most, x[i]);
  for (; t < count; t++) most = std::max(most, scores[t]);
  return most;
}

// ------ the relay over its sequence

// Products of 2 W numbers, added up in W lanes.
vf pairs(const float* x, const float* y) { return load(x) * load(y) + load(x + W) * load(y + W); }
#ifdef __AVX512BF16__
vf pairs(const bf16* x, const bf16* y) {
  return (vf)_mm512_dpbf16_ps(_mm512_setzero_ps(), (__m512bh)_mm512_loadu_si512(x), (__m512bh)_mm512_loadu_si512(y));
}
#endif

// Scores of G heads for rows of states, `out[head * ldo + row]`.
template <int G, class T>
void scores_of(const T* query, int64_t dp, const T* states, int64_t rows, float* out, int64_t ldo) {
  for (int64_t t = 0; t < rows; t++) {
    vf sums[G] = {};
    for (int64_t j = 0; j < dp; j += 2 * W)
      for (int g = 0; g < G; g++) sums[g] += pairs(query + g * dp + j, states + t * dp + j);
    float of_heads[G + W];
    sum_lanes(sums, G, of_heads);
    for (int g = 0; g < G; g++) out[g * ldo + t] = of_heads[g];
  }
}
// Sums of rows of states by the weights of G heads, `out[head * dp + column]`.
template <int G, class T>
void sums_of(const float* weights, int64_t ldw, const T* states, int64_t rows, int64_t dp, float* out) {
  for (int64_t j = 0; j < dp; j += W) {
    vf sums[G] = {};
    for (int64_t t = 0; t < rows; t++) {
      const vf x = load(states + t * dp + j);
#pragma GCC unroll 8
      for (int g = 0; g < G; g++) sums[g] += splat(weights[g * ldw + t]) * x;
    }
    for (int g = 0; g < G; g++) store(out + g * dp + j, sums[g]);
  }
}
// Calls f(number of heads, first head) with groups of 6, 4, 2 and 1 heads.
template <class F> void in_groups(int64_t h, F f) {
  int64_t i = 0;
  for (; i + 6 <= h; i += 6) f(std::integral_constant<int, 6>(), i);
  for (; i + 4 <= h; i += 4) f(std::integral_constant<int, 4>(), i);
  for (; i + 2 <= h; i += 2) f(std::integral_constant<int, 2>(), i);
  for (; i < h; i++) f(std::integral_constant<int, 1>(), i);
}

// ------ a call

struct Call {
  Shape s;
  int64_t b, count;  // sequences and tokens
  const int64_t* offsets;
  bool half;  // what the caller gives and takes is bfloat16
  const char* embedded;
  char *states, *relay, *pooled;  // null where they are not wanted
  int threads;
};

template <class F> void parallel(int64_t count, int threads, F f) {
  threads = std::clamp<int64_t>(count, 1, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Tiles tiles;
    const int thread = omp_get_thread_num();
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; i++) f(i, thread);
  }
}

template <class T> struct Encoder {
  const Call& call;
  const Shape& s;
  const std::vector<Layer<T>>& layers;
  Arena& arena;
  const int64_t N = call.count, b = call.b, dp = s.dp(), hc = s.h * s.c, hcp = s.hcp(), kvp = s.kvp();
  const int64_t mixed = std::max(dp, (int64_t)s.vectors() * W);  // numbers of a head that a chunk adds up
  int64_t block;
  struct Chunk {
    int64_t sequence, start, stop;
  };
  std::vector<Chunk> chunks;
  std::vector<int64_t> first_chunk;
  std::vector<int32_t> sequence_of;
  std::vector<int64_t> first_panel;  // of each sequence, where attention is dense
  const int64_t ck = up(s.c, PANEL), columns = sizeof(T) == 2 ? ck : s.c;  // of a packed value and of a packed key
  T *states, *embedded, *nodes, *node_query, *node_key, *node_mix, *node_context, *node_kv;
  T *kv[2], *query, *context, *embedded_kv, *inner;
  T *packed_keys, *packed_values, *weights;
  float *update, *node_update, *partial, *chunk_scores, *scores, *mix;

  Encoder(const Call& call, const std::vector<Layer<T>>& layers, Arena& arena)
      : call(call), s(call.s), layers(layers), arena(arena) {
    block = std::clamp<int64_t>(up(N / call.threads, 2 * TILE), 2 * TILE, BLOCK);
    const int64_t rows = up(N, 2 * TILE) + 2 * TILE, node_rows = up(b, 2 * TILE) + 2 * TILE;
    const int64_t threads = call.threads;
    embedded = arena.take<T>(rows * dp);
    states = arena.take<T>(rows * dp);
    for (auto& x : kv) x = arena.take<T>(rows * kvp);
    query = arena.take<T>((threads * BLOCK + 2 * TILE) * hcp);
    context = arena.take<T>(threads * BLOCK * hcp);
    embedded_kv = arena.take<T>(threads * BLOCK * std::max(kvp, dp));
    inner = arena.take<T>(threads * BLOCK * std::max(s.innerp(), dp));
    update = arena.take<float>(threads * BLOCK * dp);
    nodes = arena.take<T>(node_rows * dp);
    node_query = arena.take<T>(node_rows * hcp);
    node_context = arena.take<T>(node_rows * hcp);
    const int64_t mixes = s.kind == STAR ? node_rows * s.h * dp : 0;
    node_key = arena.take<T>(mixes);
    node_mix = arena.take<T>(mixes);
    node_kv = arena.take<T>(node_rows * kvp);
    node_update = arena.take<float>(node_rows * dp);
    chunk_scores = arena.take<float>(threads * s.h * CHUNK);
    sequence_of.resize(N);
    for (int64_t i = 0; i < b; i++) {
      first_chunk.push_back(chunks.size());
      for (int64_t t = call.offsets[i]; t < call.offsets[i + 1]; t += CHUNK)
        chunks.push_back({i, t, std::min(t + CHUNK, call.offsets[i + 1])});
      std::fill(sequence_of.begin() + call.offsets[i], sequence_of.begin() + call.offsets[i + 1], (int32_t)i);
    }
    first_chunk.push_back(chunks.size());
    for (int64_t i = 0; s.is_dense() && i <= b; i++) {
      const int64_t tokens = i ? call.offsets[i] - call.offsets[i - 1] : 0;
      first_panel.push_back((i ? first_panel.back() : 0) + up(std::max<int64_t>(tokens - 1, 0), PANEL) / PANEL);
    }
    const int64_t packed = s.is_dense() ? s.h * first_panel.back() * PANEL : 0, dense = s.is_dense() ? threads : 0;
    packed_keys = arena.take<T>(packed * columns);
    packed_values = arena.take<T>(packed * ck);
    weights = arena.take<T>(dense * QUERIES * KEYS);
    scores = arena.take<float>(dense * QUERIES * KEYS);
    mix = arena.take<float>(dense * QUERIES * 2 * ck);
    partial = arena.take<float>(chunks.size() * s.h * (mixed + 2) + W);
  }

  // Calls f(first token, number of tokens, thread) for each block.
  template <class F> void for_blocks(F f) {
    parallel((N + block - 1) / block, call.threads, [&](int64_t i, int thread) {
      f(i * block, std::min(block, N - i * block), thread);
    });
  }
  // The same for sequences.
  template <class F> void for_nodes(F f) {
    const int64_t size = 2 * TILE;
    parallel((b + size - 1) / size, call.threads, [&](int64_t i, int) { f(i * size, std::min(size, b - i * size)); });
  }
  // Rows `[count, d]` of the caller to rows of stride dp, and back.
  void read(const char* from, int64_t row, int64_t count, T* to) {
    for (int64_t i = row; i < row + count; i++) {
      if (call.half) convert((const bf16*)from + i * s.d, to + i * dp);
      else convert((const float*)from + i * s.d, to + i * dp);
      std::fill(to + i * dp + s.d, to + (i + 1) * dp, T{});
    }
  }
  void write(const T* from, int64_t row, int64_t count, char* to) {
    for (int64_t i = row; i < row + count; i++) write_row(from + i * dp, i, to);
  }
  template <class From> void write_row(const From* from, int64_t row, char* to) {
    if (call.half) convert(from, (bf16*)to + row * s.d);
    else convert(from, (float*)to + row * s.d);
  }
  template <class From, class To> void convert(const From* from, To* to) {
    int64_t j = 0;
    for (; j + W <= s.d; j += W) store(to + j, load(from + j));
    for (; j < s.d; j++) narrow(widen(from[j]), to + j);
  }

  // The update of each node from itself and its sequence, `node_update`.
  //   score = (W_K^T q) . x,   update = W_O sum_i W_V (sum of a x)
  void attend_over_states(const Relay<T>& relay, const T* x) {
    const int64_t h = s.h, width = h * dp;
    for_nodes([&](int64_t row, int64_t count) {
      product(nodes + row * dp, dp, count, relay.query, relay.query_bias, NONE, node_query + row * hcp, hcp);
      for (int64_t i = 0; i < h; i++)
        product(node_query + row * hcp + i * s.c, hcp, count, relay.key[i], nullptr, NONE,
                node_key + row * width + i * dp, width);
    });
    for_chunks([&](const Chunk& chunk, float* scores, Sums sums) {
      const int64_t count = chunk.stop - chunk.start;
      const T *key = node_key + chunk.sequence * width, *rows = x + chunk.start * dp;
      in_groups(h, [&](auto group, int64_t i) {
        scores_of<group()>(key + i * dp, dp, rows, count, scores + i * CHUNK, CHUNK);
      });
      for (int64_t i = 0; i < h; i++) exponentials(scores + i * CHUNK, count, sums.most[i], sums.total[i]);
      in_groups(h, [&](auto group, int64_t i) {
        sums_of<group()>(scores + i * CHUNK, CHUNK, rows, count, dp, sums.mix + i * dp);
      });
    });
    for_nodes([&](int64_t row, int64_t count) {
      for (int64_t n = row; n < row + count; n++)
        for (int64_t i = 0; i < h; i++) {
          const T *node = nodes + n * dp, *key = node_key + n * width + i * dp;
          float own;
          scores_of<1>(key, dp, node, 1, &own, 1);
          join(n, i, own, node, dp, dp, node_mix + n * width + i * dp);
        }
      // What lies beyond the last head is read by a product in bfloat16: 0 times NaN of an earlier call would be NaN.
      for (int64_t n = row; n < row + count; n++)
        std::fill(node_context + n * hcp + hc, node_context + (n + 1) * hcp, T{});
      for (int64_t i = 0; i < h; i++)
        product(node_mix + row * width + i * dp, width, count, relay.value[i], nullptr, NONE,
                node_context + row * hcp + i * s.c, hcp);
      product(node_context + row * hcp, hcp, count, relay.output, relay.output_bias, NONE, node_update + row * dp, dp);
    });
  }
  // The update of each node, a first token, from the keys and values of its sequence; a head is V vectors.
  template <int V> void attend_over_keys(const Layer<T>& layer, const T* kv) {
    const int64_t h = s.h, c = s.c;
    for_nodes([&](int64_t row, int64_t count) {
      product(nodes + row * dp, dp, count, layer.query, layer.query_bias, NONE, node_query + row * hcp, hcp);
    });
    for_chunks([&](const Chunk& chunk, float* scores, Sums sums) {
      const int64_t count = chunk.stop - chunk.start;
      for (int64_t i = 0; i < h; i++) {
        const Query<V, T> q(node_query + chunk.sequence * hcp + i * c, c);
        const T *key = kv + chunk.start * kvp + i * c, *value = key + hc;
        for (int64_t t = 0; t < count; t += W) {
          vf products[W];
          for (int64_t k = 0; k < W; k++) products[k] = q.times(key + std::min(t + k, count - 1) * kvp);
          sum_lanes(products, W, scores + t);
        }
        exponentials(scores, count, sums.most[i], sums.total[i]);
        vf mix[V] = {};
        for (int64_t t = 0; t < count; t++)
          for (int j = 0; j < V; j++) mix[j] += splat(scores[t]) * load(value + t * kvp + j * W);
        for (int j = 0; j < V; j++) store(sums.mix + i * V * W + j * W, mix[j]);
      }
    });
    for_nodes([&](int64_t row, int64_t count) {
      for (int64_t n = row; n < row + count; n++) {
        T* of_context = node_context + n * hcp;
        // What lies beyond a head is overwritten by the next one.
        for (int64_t i = 0; i < h; i++) join(n, i, -INFINITY, nullptr, V * W, c, of_context + i * c);
        std::fill(of_context + hc, of_context + hcp, T{});
      }
      product(node_context + row * hcp, hcp, count, layer.output, layer.output_bias, NONE, node_update + row * dp, dp);
    });
  }
  void attend_over_keys(const Layer<T>& layer, const T* kv) {
    switch (s.vectors()) {
      case 1: return attend_over_keys<1>(layer, kv);
      case 2: return attend_over_keys<2>(layer, kv);
      case 4: return attend_over_keys<4>(layer, kv);
      case 8: return attend_over_keys<8>(layer, kv);
      default: return attend_over_keys<16>(layer, kv);
    }
  }
  // The packed keys of a sequence, `[h][panel]`, and its values, `[h][columns][panel]`.
  void pack_sequences(const T* kv) {
    std::vector<Chunk> panels;
    for (int64_t n = 0; n < b; n++)
      for (int64_t t = call.offsets[n] + 1; t < call.offsets[n + 1]; t += PANEL)
        panels.push_back({n, t, std::min<int64_t>(t + PANEL, call.offsets[n + 1])});
    parallel(panels.size(), call.threads, [&](int64_t i, int) {
      const auto& [n, start, stop] = panels[i];
      const int64_t from = first_panel[n], count = first_panel[n + 1] - from;
      for (int64_t head = 0; head < s.h; head++) {
        const T* rows = kv + start * kvp + head * s.c;
        pack_keys(rows, kvp, stop - start, s.c, packed_keys + (from * s.h + head * count + i - from) * columns * PANEL);
        for (int64_t k = 0; k < ck; k += PANEL)
          pack_values(rows + hc + k, kvp, stop - start, s.c - k,
                      packed_values + (from * s.h * ck + (head * ck + k) * count + (i - from) * PANEL) * PANEL);
      }
    });
  }
  // The context of `count` tokens of a sequence, at most QUERIES, that begin with token `from` of it.
  void attend_densely(const T* queries, int64_t n, int64_t from, int64_t count, const T* kv, int thread, T* context) {
    const int64_t start = call.offsets[n], last = call.offsets[n + 1] - start - 1, panel = first_panel[n];
    const int64_t panels = first_panel[n + 1] - panel;
    // Keys of a token, from the first one to the one after the last: all of the first token's.
    auto low = [&](int64_t t) { return t ? std::max<int64_t>(t - s.radius - 1, 0) : 0; };
    auto high = [&](int64_t t) { return t ? std::min(t + s.radius, last) : last; };
    T* p = weights + thread * QUERIES * KEYS;
    float *x = scores + thread * QUERIES * KEYS, *total = mix + thread * QUERIES * 2 * ck, *sums = total + QUERIES * ck;
    float most[QUERIES], denominator[QUERIES];
    for (int64_t head = 0; head < s.h; head++) {
      const T *q = queries + head * s.c, *first_key = kv + start * kvp + head * s.c;
      for (int64_t i = 0; i < count; i++) {
        most[i] = dot(q + i * hcp, first_key, s.c);
        denominator[i] = 1;
        for (int64_t j = 0; j < s.c; j += W) store(total + i * ck + j, load(first_key + hc + j));
      }
      const int64_t to = high(from + count - 1);
      for (int64_t chunk = low(from) / KEYS * KEYS; chunk < to; chunk += KEYS) {
        const int64_t begin = std::max(chunk, low(from) / PANEL * PANEL), end = std::min(chunk + KEYS, up(to, PANEL));
        const Matrix<T> keys{packed_keys + (panel * s.h + head * panels + begin / PANEL) * columns * PANEL,
                             (end - begin) / PANEL, columns};
        product(q, hcp, count, keys, nullptr, NONE, x, KEYS);
        for (int64_t i = 0; i < count; i++) {
          float* row = x + i * KEYS;
          const int64_t left = std::clamp(low(from + i) - begin, (int64_t)0, end - begin);
          const int64_t right = std::clamp(high(from + i) - begin, left, end - begin);
          const float now = largest(row + left, right - left, most[i]), factor = std::exp(most[i] - now);
          most[i] = now;
          vf added = {};
          for (int64_t t = 0; t < end - begin; t += W) {
            vf e = exponential(load(row + t) - splat(now));
            if (t < left || t + W > right) e = between(e, left - t, right - t);
            added += e;
            store(p + i * KEYS + t, e);
          }
          denominator[i] = denominator[i] * factor + sum(added);
          for (int64_t j = 0; j < s.c; j += W) store(total + i * ck + j, load(total + i * ck + j) * splat(factor));
        }
        for (int64_t k = 0; k < ck; k += PANEL) {
          const Matrix<T> values{packed_values + (panel * s.h * ck + (head * ck + k) * panels + begin) * PANEL, 1,
                                 end - begin};
          product(p, KEYS, count, values, nullptr, NONE, sums + k, ck);
        }
        for (int64_t i = 0; i < count; i++)
          for (int64_t j = 0; j < s.c; j += W)
            store(total + i * ck + j, load(total + i * ck + j) + load(sums + i * ck + j));
      }
      // What lies beyond the head is overwritten by the next one.
      for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < s.c; j += W)
          store(context + i * hcp + head * s.c + j, first(load(total + i * ck + j) * splat(1 / denominator[i]), s.c - j));
    }
    for (int64_t i = 0; i < count; i++) std::fill(context + i * hcp + hc, context + (i + 1) * hcp, T{});
  }
  // The same for tokens of any sequences.
  void attend_densely(const T* queries, int64_t row, int64_t count, const T* kv, int thread, T* context) {
    for (int64_t t = row, stop; t < row + count; t = stop) {
      const int64_t n = sequence_of[t], from = t - call.offsets[n];
      stop = std::min({t + QUERIES, row + count, call.offsets[n + 1]});
      // The first token attends to all others: alone, where the next ones do not.
      if (!from && call.offsets[n + 1] - call.offsets[n] > s.radius + 1) stop = t + 1;
      attend_densely(queries + (t - row) * hcp, n, from, stop - t, kv, thread, context + (t - row) * hcp);
    }
  }
  // Of a chunk and each head the largest score, the sum of exponentials and the sum of rows.
  struct Sums {
    float *most, *total, *mix;
  };
  Sums sums_of_chunk(int64_t n) {
    float* first = partial + n * s.h * (mixed + 2);
    return {first, first + s.h, first + 2 * s.h};
  }
  // Calls f(chunk, room for scores, sums) for each chunk.
  template <class F> void for_chunks(F f) {
    parallel(chunks.size(), call.threads, [&](int64_t n, int thread) {
      f(chunks[n], chunk_scores + thread * s.h * CHUNK, sums_of_chunk(n));
    });
  }
  // Scores to e^(score - largest).
  static void exponentials(float* scores, int64_t count, float& most, float& total) {
    most = *std::max_element(scores, scores + count);
    vf sums = {};
    for (int64_t t = 0; t < count; t += W) {
      vf e = first(exponential(load(scores + t) - splat(most)), std::min<int64_t>(count - t, W));
      store(scores + t, e);
      sums += e;
    }
    total = sum(sums);
  }
  // The mean row of a sequence for a head, from its chunks and from the node itself, whose score is `own`; the first
  // `kept` of its numbers.
  void join(int64_t n, int64_t i, float own, const T* node, int64_t width, int64_t kept, T* out) {
    float most = own;
    for (int64_t k = first_chunk[n]; k < first_chunk[n + 1]; k++) most = std::max(most, sums_of_chunk(k).most[i]);
    const float of_own = node ? std::exp(own - most) : 0;
    float total = of_own;
    for (int64_t k = first_chunk[n]; k < first_chunk[n + 1]; k++)
      total += std::exp(sums_of_chunk(k).most[i] - most) * sums_of_chunk(k).total[i];
    const float factor = total > 0 || total != total ? 1 / total : 0;  // an empty sequence has no candidate
    for (int64_t j = 0; j < width; j += W) {
      vf x = node ? splat(of_own) * load(node + j) : vf{};
      for (int64_t k = first_chunk[n]; k < first_chunk[n + 1]; k++)
        x += splat(std::exp(sums_of_chunk(k).most[i] - most)) * load(sums_of_chunk(k).mix + i * width + j);
      store(out + j, first(x * splat(factor), kept - j));
    }
  }

  void star() {
    for_blocks([&](int64_t row, int64_t count, int) {
      read(call.embedded, row, count, embedded);
      product(embedded + row * dp, dp, count, layers[0].key_value, nullptr, NONE, kv[0] + row * kvp, kvp);
    });
    if (s.radial) for_nodes([&](int64_t row, int64_t count) {
      for (int64_t n = row; n < row + count; n++) start(n);
    });
    const T* x = embedded;
    for (int64_t l = 0; l < s.layers; l++) {
      const Layer<T>& layer = layers[l];
      T *own = kv[l % 2], *next = kv[(l + 1) % 2];
      if (s.radial) for_nodes([&](int64_t row, int64_t count) {
        product(nodes + row * dp, dp, count, layer.key_value, nullptr, NONE, node_kv + row * kvp, kvp);
      });
      for_blocks([&](int64_t row, int64_t count, int thread) {
        T *q = query + thread * BLOCK * hcp, *of_context = context + thread * BLOCK * hcp;
        T* of_embedded = of_block(thread);
        float* u = update + thread * BLOCK * dp;
        product(x + row * dp, dp, count, layer.query, layer.query_bias, NONE, q, hcp);
        // In the first layer the states are the embeddings.
        if (l) product(embedded + row * dp, dp, count, layer.key_value, nullptr, NONE, of_embedded, kvp);
        else of_embedded = own + row * kvp;
        for (int64_t i = 0; i < count; i++) {
          const T* keys[MOST_CANDIDATES];
          const int64_t t = row + i, n = sequence_of[t], start = call.offsets[n], length = call.offsets[n + 1] - start;
          int64_t found = 0;
          for (int64_t k = -s.radius; k <= s.radius; k++) {
            int64_t place = t - start + k;
            if (place < 0 || place >= length) place = (place % length + length) % length;
            keys[found++] = own + (start + place) * kvp;
          }
          keys[found++] = of_embedded + i * kvp;
          if (s.radial) keys[found++] = node_kv + n * kvp;
          attend(q + i * hcp, keys, found, layer.role_bias, s, of_context + i * hcp);
        }
        product(of_context, hcp, count, layer.output, layer.output_bias, NONE, u, dp);
        for (int64_t i = 0; i < count; i++)
          end_layer(l, row + i, u + i * dp, s.residual ? x + (row + i) * dp : nullptr, s.activation, layer.norm);
        if (l + 1 < s.layers)
          product(states + row * dp, dp, count, layers[l + 1].key_value, nullptr, NONE, next + row * kvp, kvp);
      });
      x = states;
      if (s.radial && (l + 1 < s.layers || call.relay)) {
        attend_over_states(layer.relay, x);
        for_nodes([&](int64_t row, int64_t count) {
          for (int64_t n = row; n < row + count; n++)
            norm(node_update + n * dp, s.residual ? nodes + n * dp : nullptr, s.activation, layer.relay_norm, s,
                 nodes + n * dp);
          if (l + 1 == s.layers) write_nodes(row, count, call.relay);
        });
      }
    }
    if (call.pooled) pool();
  }
  // The norm after which a layer ends. The caller gets the last states before they are rounded.
  void end_layer(int64_t l, int64_t row, const float* u, const T* state, int activation, const float* weight) {
    T* out = states + row * dp;
    if (l + 1 < s.layers || !call.states) return norm(u, state, activation, weight, s, out);
    float x[dp];
    norm(u, state, activation, weight, s, x);
    write_row(x, row, call.states);
    for (int64_t j = 0; j < dp; j += W) store(out + j, load(x + j));
  }
  // Zeros for the nodes of empty sequences.
  void write_nodes(int64_t row, int64_t count, char* to) {
    for (int64_t n = row; n < row + count; n++)
      if (call.offsets[n] == call.offsets[n + 1]) std::fill_n(nodes + n * dp, dp, T{});
    write(nodes, row, count, to);
  }
  // The vector of each sequence from its last states, plus its relay; zeros where it is empty.
  void pool() {
    for_nodes([&](int64_t row, int64_t count) {
      float x[dp];
      for (int64_t n = row; n < row + count; n++) {
        const int64_t start = call.offsets[n], stop = call.offsets[n + 1];
        for (int64_t j = 0; j < dp; j += W) store(x + j, start < stop ? load(states + start * dp + j) : vf{});
        for (int64_t t = start + 1; t < stop && s.pooling != FIRST; t++)
          for (int64_t j = 0; j < dp; j += W) {
            const vf y = load(x + j), z = load(states + t * dp + j);
            store(x + j, s.pooling == MAXIMUM ? select((y < z) | (z != z), z, y) : y + z);  // z is no number: it stays
          }
        const vf factor = splat(s.pooling == MEAN ? 1.0f / std::max<int64_t>(stop - start, 1) : 1.0f);
        for (int64_t j = 0; j < dp; j += W) {
          vf y = load(x + j) * factor;
          store(x + j, call.relay ? y + load(nodes + n * dp + j) : y);
        }
        write_row(x, n, call.pooled);
      }
    });
  }
  // The relay before the first layer: the mean of the embeddings, with a norm where the configuration has one.
  void start(int64_t n) {
    const int64_t start = call.offsets[n], stop = call.offsets[n + 1];
    const vf factor = splat(1.0f / std::max<int64_t>(stop - start, 1));
    float x[dp];
    for (int64_t j = 0; j < dp; j += W) {
      vf total = {};
      for (int64_t t = start; t < stop; t++) total += load(embedded + t * dp + j);
      store(x + j, total * factor);
    }
    if (s.start_norm) return norm(x, (const T*)nullptr, NONE, layers[0].start_norm, s, nodes + n * dp);
    for (int64_t j = 0; j < dp; j += W) store(nodes + n * dp + j, load(x + j));
  }

  // Rows of a thread, of a stride of at most max(kvp, dp), for a block of tokens or of sequences, which may be more.
  T* of_block(int thread) { return embedded_kv + thread * BLOCK * std::max(kvp, dp); }

  // Feed-forward of rows after their attention, without the norm after it: from x and u to y and u.
  void feed_forward(const Layer<T>& layer, const T* x, float* u, int64_t count, int thread, T* y) {
    T* of_inner = inner + thread * BLOCK * std::max(s.innerp(), dp);
    for (int64_t i = 0; i < count; i++) norm(u + i * dp, x + i * dp, NONE, layer.norm, s, y + i * dp);
    product(y, dp, count, layer.inner, layer.inner_bias, s.activation, of_inner, s.innerp());
    product(of_inner, s.innerp(), count, layer.outer, layer.outer_bias, NONE, u, dp);
  }

  void big() {
    for_blocks([&](int64_t row, int64_t count, int) {
      read(call.embedded, row, count, states);
      product(states + row * dp, dp, count, layers[0].key_value, nullptr, NONE, kv[0] + row * kvp, kvp);
    });
    for (int64_t l = 0; l < s.layers; l++) {
      const Layer<T>& layer = layers[l];
      T *own = kv[l % 2], *next = kv[(l + 1) % 2];
      // Of the last layer nothing but the first tokens may be read.
      const bool only_first = s.pooling == FIRST && !call.states && l + 1 == s.layers, dense = s.is_dense();
      if (only_first || !dense) {
        for (int64_t n = 0; n < b; n++)  // an empty sequence has any row, also where there is no token
          memcpy(nodes + n * dp, states + std::min(call.offsets[n], std::max<int64_t>(N - 1, 0)) * dp, dp * sizeof(T));
        attend_over_keys(layer, own);
      } else {
        pack_sequences(own);
      }
      if (only_first) {
        parallel((b + BLOCK - 1) / BLOCK, call.threads, [&](int64_t i, int thread) {
          const int64_t row = i * BLOCK, count = std::min<int64_t>(BLOCK, b - row);
          T* y = of_block(thread);
          float* u = node_update + row * dp;
          feed_forward(layer, nodes + row * dp, u, count, thread, y);
          for (int64_t i = 0; i < count; i++)
            norm(u + i * dp, y + i * dp, NONE, layer.outer_norm, s, nodes + (row + i) * dp);
          write_nodes(row, count, call.pooled);
        });
        return;
      }
      for_blocks([&](int64_t row, int64_t count, int thread) {
        T *q = query + thread * BLOCK * hcp, *of_context = context + thread * BLOCK * hcp;
        T* y = of_block(thread);
        float* u = update + thread * BLOCK * dp;
        product(states + row * dp, dp, count, layer.query, layer.query_bias, NONE, q, hcp);
        if (dense) attend_densely(q, row, count, own, thread, of_context);
        for (int64_t i = 0; i < count && !dense; i++) {
          const T* keys[MOST_CANDIDATES];
          const int64_t t = row + i, start = call.offsets[sequence_of[t]], stop = call.offsets[sequence_of[t] + 1];
          int64_t found = 0;
          keys[found++] = own + start * kvp;
          for (int64_t k = std::max(start + 1, t - s.radius); k < std::min(stop, t + s.radius + 1); k++)
            keys[found++] = own + k * kvp;
          attend(q + i * hcp, keys, found, nullptr, s, of_context + i * hcp);
        }
        product(of_context, hcp, count, layer.output, layer.output_bias, NONE, u, dp);
        for (int64_t i = 0; i < count && !dense; i++) {
          const int64_t n = sequence_of[row + i];
          if (row + i == call.offsets[n]) memcpy(u + i * dp, node_update + n * dp, dp * sizeof(float));
        }
        feed_forward(layer, states + row * dp, u, count, thread, y);
        for (int64_t i = 0; i < count; i++) end_layer(l, row + i, u + i * dp, y + i * dp, NONE, layer.outer_norm);
        if (l + 1 < s.layers)
          product(states + row * dp, dp, count, layers[l + 1].key_value, nullptr, NONE, next + row * kvp, kvp);
      });
    }
    if (call.pooled) pool();
  }
};

template <class T> void encode(const Call& call, const char* packed) {
  thread_local Arena arena;
  struct End {
    ~End() { arena.end(); }
  } end;
  Pieces pieces{const_cast<char*>(packed)};
  const auto layers = lay_out<T>(call.s, pieces);
  Encoder<T> encoder(call, layers, arena);
  if (call.s.kind == STAR) encoder.star();
  else encoder.big();
}

#ifdef __AVX512BF16__
typedef bf16 Half;
#else
typedef float Half;
#endif

}  // namespace

// ------ what cpu.py calls: `low` says that layers compute in bfloat16, where this code has AVX512_BF16, and `half` that
// the numbers of the caller are bfloat16

extern "C" {

// Whether this processor and its system run the code.
int modeling_star_ready() {
#ifdef __AMX_BF16__
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;  // ARCH_REQ_XCOMP_PERM of the tiles' data
#else
  return 1;
#endif
}

// Numbers of a vector.
int modeling_star_lanes() { return W; }

int64_t modeling_star_packed_size(const Shape* shape, int low) {
  Pieces pieces{nullptr};
  low ? (void)lay_out<Half>(*shape, pieces) : (void)lay_out<float>(*shape, pieces);
  return pieces.size;
}

// `parameters`: SLOTS for each layer, null where there is none.
void modeling_star_pack(const Shape* shape, int low, int half, const void* const* parameters, char* packed) {
  low ? pack<Half>(*shape, parameters, half, packed) : pack<float>(*shape, parameters, half, packed);
}

// Embeddings `[N, d]` to states `[N, d]`, relays `[b, d]` and the vectors of sequences `[b, d]`, those that are not null.
// Token t of sequence i is row `offsets[i] + t`. Returns 1 where memory does not suffice, and 2 for a shape without code.
int modeling_star_encode(const Shape* shape, int low, int half, const char* packed, const char* embedded,
                         const int64_t* offsets, int64_t b, char* states, char* relay, char* pooled, int threads) {
  if (!shape->has_code()) return 2;
  threads = std::max(threads, 1);
  const int64_t row = shape->d * (half ? 2 : 4);
  try {
    for (int64_t start = 0, stop; start < b; start = stop) {
      for (stop = start + 1; stop < b && offsets[stop + 1] - offsets[start] <= GROUP * (int64_t)threads;) stop++;
      const int64_t token = offsets[start];
      auto from = [&](char* p, int64_t i) { return p ? p + i * row : nullptr; };
      std::vector<int64_t> inside;
      for (int64_t i = start; i <= stop; i++) inside.push_back(offsets[i] - token);
      const Call call{*shape, stop - start, inside.back(), inside.data(), half != 0, embedded + token * row,
                      from(states, token), from(relay, start), from(pooled, start), threads};
      low ? encode<Half>(call, packed) : encode<float>(call, packed);
    }
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}
}
