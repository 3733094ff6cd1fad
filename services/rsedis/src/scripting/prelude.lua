-- What every script sees. `host` is the server's side: `call` while a script runs, `register` while a library is loaded.
local host, lua = ...

-- What getmetatable says of everything that is not a script's own.
local locked = {}
local function refuse() error("Attempt to modify a readonly table", 2) end
setmetatable(locked, {__newindex = refuse, __metatable = locked})
local type = type
local find, gmatch, gsub, match, rep, sub = string.find, string.gmatch, string.gsub, string.match, string.rep, string.sub
local concat = table.concat

-- What stands behind a table that cannot be written, for who lists it.
local behind = {}

local function readonly(table_)
    local shown = setmetatable({}, {__index = table_, __newindex = refuse, __metatable = locked})
    behind[shown] = table_
    return shown
end

-- What was raised, as a script may see it.
local function plain(problem)
    if type(problem) == "userdata" then return host.plain(problem) end
    return problem
end

-- One of Lua's own functions may take as long as very many instructions, and the clock is looked at after so many of these: what makes
-- long strings says so, and the clock is looked at after so many bytes.
local LOOK_BYTES, MUCH_BYTES = 2^24, 2^16
local spent = 0
local function spend(bytes)
    spent = spent + bytes
    if spent > LOOK_BYTES then
        spent = 0
        host.look()
    end
end

-- What cannot be made is refused before much of it is made. What nobody needs any more counts as well: it goes first, and that takes long.
local NO_MEMORY = "not enough memory"
local function lacks(bytes) return collectgarbage("count") * 1024 + bytes > host.memory_bytes_max end
local function check_room(bytes)
    if not (bytes > MUCH_BYTES) then return end
    if bytes <= host.memory_bytes_max and lacks(bytes) then
        collectgarbage("collect")
        host.look()
    end
    if lacks(bytes) then error(NO_MEMORY, 0) end
end

-- What one of Lua's own functions gives. What it refuses is told as if it had been called without us: with the place of the call, and its name.
local REFUSALS = {
    "^bad argument #", "^malformed pattern ", "^missing '", "^unbalanced pattern$", "^unfinished capture$", "^invalid ", "^too many captures$",
}
local function settle(name, is_well, ...)
    local first = ...
    if is_well then
        if type(first) == "string" and #first > MUCH_BYTES then spend(#first) end
        return ...
    end
    if type(first) == "string" then
        for _, refusal in ipairs(REFUSALS) do
            if find(first, refusal) then error((gsub(first, "'%?'", "'" .. name .. "'", 1)), 3) end
        end
    end
    error(first, 0)
end

-- Lua matches an item that may stand more than once, or not at all, by a call of its own in C, without a bound: 50,000 of them overflow the
-- stack of 8 MiB and end the process.
local ITEMS_MAX = 5000
local function check_pattern(pattern)
    if type(pattern) == "string" and #pattern > ITEMS_MAX then
        local _, items = gsub(pattern, "[*+?-]", "")
        if items > ITEMS_MAX then error("pattern too complex", 3) end
    end
end

-- Whether there is nothing in a pattern that Lua refuses, wherever it is matched. Balances, frontiers and back references are not read.
local READ_MAX = 200
local function reads_well(pattern)
    if #pattern > READ_MAX or find(pattern, "%z") then return false end
    local at, captures, open = 1, 0, 0
    while at <= #pattern do
        local item = sub(pattern, at, at)
        at = at + 1
        if item == "%" then
            if not find(pattern, "^[^bf%d]", at) then return false end
            at = at + 1
        elseif item == "[" then
            if sub(pattern, at, at) == "^" then at = at + 1 end
            -- A bracket that stands first does not close.
            repeat
                at = at + (sub(pattern, at, at) == "%" and 2 or 1)
                if at > #pattern then return false end
            until sub(pattern, at, at) == "]"
            at = at + 1
        elseif item == "(" then
            captures = captures + 1
            if captures > 32 then return false end
            if sub(pattern, at, at) == ")" then at = at + 1 else open = open + 1 end
        elseif item == ")" then
            if open == 0 then return false end
            open = open - 1
        end
    end
    return open == 0
end
local READ_COUNT_MAX = 1000
local read, read_count = {}, 0
local function is_sound(pattern)
    if type(pattern) ~= "string" or read[pattern] == false then return false end
    if read_count == READ_COUNT_MAX then read, read_count = {}, 0 end
    local found = reads_well(pattern)
    read[pattern], read_count = found, read_count + 1
    return found
end

-- What cannot be refused, and makes nothing long, is called without more ado: `pcall` and the rest cost more than most of what these do.
function string.find(...)
    local text, pattern, from, is_plain = ...
    if type(text) == "string" and (from == nil or type(from) == "number") then
        if read[pattern] or (is_plain and type(pattern) == "string") or is_sound(pattern) then
            return find(text, pattern, from, is_plain)
        end
    end
    if not is_plain then check_pattern(pattern) end
    return settle("find", pcall(find, ...))
end
function string.match(...)
    local text, pattern, from = ...
    if type(text) == "string" and #text <= MUCH_BYTES and (from == nil or type(from) == "number") then
        if read[pattern] or is_sound(pattern) then return match(text, pattern, from) end
    end
    check_pattern(pattern)
    return settle("match", pcall(match, ...))
end
function string.gsub(...)
    local text, pattern, by, most = ...
    if type(text) == "string" and type(by) == "string" and (#text + 1) * (#by + 1) <= MUCH_BYTES then
        if (read[pattern] or is_sound(pattern)) and (most == nil or type(most) == "number") and not find(by, "%", 1, true) then
            return gsub(text, pattern, by, most)
        end
    end
    check_pattern(pattern)
    return settle("gsub", pcall(gsub, ...))
end
function string.gmatch(...)
    check_pattern((select(2, ...)))
    return settle("gmatch", pcall(gmatch, ...))
end
string.gfind = string.gmatch
function string.rep(...)
    local text, times = ...
    if type(text) == "string" and type(times) == "number" and #text > 0 and #text * times <= MUCH_BYTES then
        return rep(text, times)
    end
    local count = tonumber(times) or 0
    -- Lua's own goes round as often all the same.
    if text == "" and count > 0 then return "" end
    if type(text) == "string" then check_room(#text * count) end
    return settle("rep", pcall(rep, ...))
end
function table.concat(...)
    local list, separator, from, to = ...
    if type(list) == "table" and type(separator) == "string" then
        check_room(#separator * ((tonumber(to) or #list) - (tonumber(from) or 1)))
    end
    return settle("concat", pcall(concat, ...))
end

local redis = {call = host.call, pcall = host.pcall}

function redis.error_reply(text)
    if type(text) ~= "string" then
        return {err = "ERR wrong number or type of arguments"}
    end
    text = gsub(text, "^%-", "")
    if not find(text, " ", 1, true) then text = "ERR " .. text end
    return {err = text}
end

function redis.status_reply(text)
    if type(text) ~= "string" then
        return {err = "ERR wrong number or type of arguments"}
    end
    return {ok = text}
end

-- What these refuse they tell, and the server raises it: where they are called last, Lua forgets who called them.
local REFUSED = {}
local function raising(callback) return host.raising(callback, REFUSED) end

redis.sha1hex = raising(function(...)
    if select("#", ...) ~= 1 then return REFUSED, "ERR wrong number of arguments" end
    return host.sha1hex(tostring((...)))
end)

redis.log = raising(function(...)
    if select("#", ...) < 2 then return REFUSED, "ERR redis.log() requires two arguments or more." end
    local level = tonumber((...))
    if not level then return REFUSED, "ERR First argument must be a number (log level)." end
    if level < 0 or level > 3 then return REFUSED, "ERR Invalid debug level." end
    local words = {select(2, ...)}
    for at, word in ipairs(words) do words[at] = tostring(word) end
    host.log(level, concat(words, " "))
end)

redis.setresp = raising(function(...)
    if select("#", ...) ~= 1 then return REFUSED, "ERR redis.setresp() requires one argument." end
    local version = math.floor(tonumber((...)) or 0)
    if version ~= 2 and version ~= 3 then return REFUSED, "ERR RESP version must be 2 or 3." end
    host.setresp(version)
end)

redis.set_repl = raising(function(...)
    if select("#", ...) ~= 1 then return REFUSED, "ERR redis.set_repl() requires two arguments." end
    local flags = math.floor(tonumber((...)) or 0)
    if flags < 0 or flags > 3 then
        return REFUSED, "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
    end
    host.set_repl(flags)
end)

function redis.replicate_commands() return true end
redis.breakpoint, redis.debug = host.breakpoint, host.debug

redis.acl_check_cmd = raising(function(...)
    if select("#", ...) == 0 then return REFUSED, "ERR Please specify at least one argument for this redis lib call" end
    if not host.is_command(...) then return REFUSED, "ERR Invalid command passed to redis.acl_check_cmd()" end
    return host.is_allowed(...)
end)

redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL = 0, 1, 2, 2, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = host.version, host.version_number

-- What is loaded sees what its script sees, and not what this file does.
local script_env
local checked_loadstring = raising(function(...)
    local chunk = ...
    if type(chunk) == "string" and chunk:byte(1) == 27 then
        return nil, "attempt to load a binary chunk"
    end
    local callback, problem = loadstring(...)
    if not callback then return nil, problem end
    return setfenv(callback, script_env)
end)

-- What is no table is told as Lua tells it.
local function no_table(name, ...)
    local kind = select("#", ...) == 0 and "no value" or type((...))
    return "bad argument #1 to '" .. name .. "' (table expected, got " .. kind .. ")"
end

-- Lua's own overflows where the indices are far apart.
local TOO_MANY = "too many results to unpack"
local function index(value, place, default)
    if value == nil then return default end
    return tonumber(value) or error("bad argument #" .. place .. " to 'unpack' (number expected, got " .. type(value) .. ")", 3)
end
local function checked_unpack(...)
    local list, from, to = ...
    if type(list) ~= "table" then error(no_table("unpack", ...), 2) end
    -- A whole list is what Lua's own takes the most of.
    if from == nil and to == nil then
        if #list > 7999 then error(TOO_MANY, 2) end
        return unpack(list)
    end
    from, to = index(from, 2, 1), index(to, 3, #list)
    if not (to - from < 7900) then error(TOO_MANY, 2) end
    return unpack(list, from, to)
end

local READONLY = "Attempt to modify a readonly table"
local function is_locked(table_) return rawequal(getmetatable(table_), locked) end
local checked_rawset = raising(function(...)
    if is_locked((...)) then return REFUSED, READONLY end
    return rawset(...)
end)
local checked_setmetatable = raising(function(...)
    if is_locked((...)) then return REFUSED, READONLY end
    return setmetatable(...)
end)

-- Lua's own, which see what stands behind a table, and do not give it away.
local function seeing(name, callback)
    return function(...)
        if type((...)) ~= "table" then error(no_table(name, ...), 2) end
        return callback(...)
    end
end
local seeing_next = seeing("next", function(table_, key) return next(behind[table_] or table_, key) end)
local seeing_pairs = seeing("pairs", function(table_)
    if behind[table_] then return seeing_next, table_, nil end
    return pairs(table_)
end)
local seeing_rawget = seeing("rawget", function(table_, ...)
    if select("#", ...) == 0 then error("bad argument #2 to 'rawget' (value expected)", 3) end
    return rawget(behind[table_] or table_, ...)
end)

-- All scripts share one collector: none stops it for the others. Who asks for that hears what Lua says, and nothing changes.
local UNCHANGED = {stop = 0, restart = 0, setpause = 200, setstepmul = 200}
local COLLECTING = {collect = true, count = true, step = true}
local collect_garbage = raising(function(what, ...)
    if what == nil then what = "collect" end
    if type(what) ~= "string" and type(what) ~= "number" then
        error("bad argument #1 to 'collectgarbage' (string expected, got " .. type(what) .. ")")
    end
    -- As Lua reads it.
    what = match(tostring(what), "^%Z*")
    if COLLECTING[what] then return collectgarbage(what, ...) end
    if not UNCHANGED[what] then error("bad argument #1 to 'collectgarbage' (invalid option '" .. what .. "')") end
    return UNCHANGED[what]
end)

-- What ends a script must not be caught by it.
local function pass_on(is_well, ...)
    if is_well then return is_well, ... end
    if host.is_over() then error((...), 0) end
    local problem = plain((...))
    -- Lua may have tried for long, and a script may try again and again.
    if type(problem) == "string" and find(problem, NO_MEMORY, 1, true) then host.look() end
    return false, problem
end
-- Of an error reply that is caught its text is left, as in Redis.
local function text_of(is_well, problem, ...)
    if not is_well and type(problem) == "table" and type(rawget(problem, "err")) == "string" then return false, problem.err end
    return is_well, problem, ...
end
local function checked_pcall(...) return text_of(pass_on(pcall(...))) end
local function checked_xpcall(callback, handler)
    return pass_on(xpcall(callback, function(problem) return handler(plain(problem)) end))
end

local function checked_load(...)
    local reader, name = ...
    if type(reader) ~= "function" then
        local kind = select("#", ...) == 0 and "no value" or type(reader)
        error("bad argument #1 to 'load' (function expected, got " .. kind .. ")", 2)
    end
    local is_first = true
    local callback, problem = load(function()
        local piece = reader()
        if is_first and type(piece) == "string" and piece:byte(1) == 27 then
            error("attempt to load a binary chunk", 0)
        end
        is_first = false
        return piece
    end, name)
    if not callback then return nil, plain(problem) end
    return setfenv(callback, script_env)
end

local coroutines = {
    create = coroutine.create, status = coroutine.status, running = coroutine.running, wrap = coroutine.wrap,
    yield = coroutine.yield,
    resume = function(...)
        if type((...)) ~= "thread" then error("bad argument #1 to 'resume' (coroutine expected)", 2) end
        return pass_on(coroutine.resume(...))
    end,
}

local globals = {
    xpcall = checked_xpcall, pcall = checked_pcall, error = error, assert = assert, tostring = tostring, tonumber = tonumber, type = type,
    next = seeing_next, pairs = seeing_pairs, ipairs = ipairs, select = select, unpack = checked_unpack, rawget = seeing_rawget,
    rawset = checked_rawset, rawequal = rawequal, setmetatable = checked_setmetatable, getmetatable = getmetatable, collectgarbage = collect_garbage,
    load = checked_load, loadstring = checked_loadstring, gcinfo = gcinfo, _VERSION = _VERSION,
    string = readonly(string), table = readonly(table), math = readonly(math), coroutine = readonly(coroutines),
    redis = readonly(redis), cjson = readonly(host.cjson), bit = readonly(host.bit), cmsgpack = readonly(host.cmsgpack),
    struct = readonly(host.struct),
}
globals.server = globals.redis
getmetatable("").__metatable = readonly({__index = globals.string})
if host.has_deprecated then globals.getfenv, globals.setfenv, globals.newproxy = getfenv, setfenv, newproxy end

-- For a function that a script has called without knowing it.
local function refuse_missing(key)
    error("Script attempted to access nonexistent global variable '" .. tostring(key) .. "'", 3)
end
script_env = readonly(setmetatable(globals, {__index = function(_, key) refuse_missing(key) end}))
globals._G = script_env

-- While a library is loaded it may register functions, and call nothing.
local is_loading = false
local loading_redis = {
    register_function = function(...)
        if not is_loading then error("redis.register_function can only be called on FUNCTION LOAD command", 2) end
        local problem = host.register(...)
        if problem then error({err = "ERR " .. problem}, 0) end
    end,
    log = redis.log, LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REDIS_VERSION = redis.REDIS_VERSION, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM,
}
local library_redis = setmetatable({}, {
    __index = function(_, key)
        local value = loading_redis[key]
        if value == nil and not is_loading then value = redis[key] end
        if value == nil then refuse_missing(key) end
        return value
    end,
    __newindex = refuse,
    __metatable = locked,
})
-- While a library is loaded there is nothing else, as in Redis.
local library_env
local library_globals = setmetatable({}, {
    __index = function(_, key)
        if key == "redis" or key == "server" then return is_loading and library_redis or globals.redis end
        local value
        if not is_loading and key ~= "KEYS" and key ~= "ARGV" then value = rawget(globals, key) end
        if value == nil then refuse_missing(key) end
        return key == "_G" and library_env or value
    end,
})
library_env = readonly(library_globals)

local function failed(problem)
    problem = plain(problem)
    local source, line = host.origin()
    if type(problem) ~= "table" then return {err = "ERR " .. tostring(problem), source = source, line = line} end
    if source and not getmetatable(problem) then problem.source, problem.line = source, line end
    -- No code of its own: what Lua itself refuses.
    if problem.err == READONLY then problem.err = "ERR " .. READONLY end
    return problem
end

return {
    script_env = script_env,
    library_env = library_env,
    compile = function(text, name, env)
        local callback, problem = loadstring(text, name)
        return callback and setfenv(callback, env), problem
    end,
    run = function(callback, keys, arguments, is_function)
        if is_function then
            return xpcall(function() return callback(keys, arguments) end, failed)
        end
        globals.KEYS, globals.ARGV = keys, arguments
        return xpcall(callback, failed)
    end,
    forget = function() globals.KEYS, globals.ARGV = nil, nil end,
    load = function(callback)
        is_loading = true
        local is_well, problem = xpcall(callback, failed)
        is_loading = false
        return is_well, problem
    end,
}
