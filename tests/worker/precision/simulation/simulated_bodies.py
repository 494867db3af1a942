"""Graphs whose bodies, branches and functions overflow in float16."""

IF = """z = If (c) <then_branch = t () => (float[N, M] p) { p = Mul(x, x) },
                    else_branch = e () => (float[N, M] q) { k = Constant<value = float {60000.0}>()
                                                            q = Add(x, k) }>
    y = Mul(z, small)"""
LOOP = """n = Constant<value = int64 {4}>()
    t = Constant<value = bool {1}>()
    last, all = Loop (n, t, x) <body = body (int64 i, bool go, float[N, M] h)
                                            => (bool on, float[N, M] g, float[N, M] s) {
        on = Identity(go)
        g = Mul(h, x)
        s = Add(g, x)
    }>
    y = Mul(last, small)"""
SCAN = """last, rows = Scan <num_scan_inputs = 1,
        body = body (float[2] h, float[2] r) => (float[2] g, float[2] o) {
        g = Mul(h, r)
        o = Identity(g)
    }> (start, x)
    y = Mul(rows, small)"""
FUNCTION = """<ir_version: 9, opset_import: ["": 18, "own": 1]>
g (float[N, M] x) => (float[N, M] y) <float small = {0.0001}> { a = own.cube(x)
    y = Mul(a, small) }
<domain: "own", opset_import: ["": 18]>
cube (v) => (w) { s = Mul(v, v)
    w = Mul(s, v) }"""
SMALL = "float small = {0.0001}"
