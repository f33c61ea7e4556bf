/** Copy a text. False where the browser has no clipboard for this page: without TLS, on another machine than the server. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
